use crate::guest::{
    connect::Failure,
    json::{Choice, Number, Octets},
};
use atoll_guest::job::{Job, Selector};
use serde::{Deserialize, Serialize, Serializer};
use std::{collections::BTreeMap, sync::Arc};

/// A message without members, and any message whose members say nothing.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Empty {}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ProcessConfig {
    pub(super) cmd: Option<String>,
    pub(super) args: Option<Vec<String>>,
    pub(super) envs: Option<BTreeMap<String, String>>,
    pub(super) cwd: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pty {
    size: Option<PtySize>,
}

#[derive(Debug, Deserialize)]
struct PtySize {
    cols: Option<Number>,
    rows: Option<Number>,
}

impl Pty {
    /// Columns and rows, as far as the kernel can count.
    pub(super) fn size(self) -> Result<(u16, u16), Failure> {
        let (cols, rows) = self.size.map_or((None, None), |size| (size.cols, size.rows));
        let read = |name, number: Option<Number>| {
            let number = number.map_or(0, |number| number.0);
            u16::try_from(number).map_err(|_| {
                Failure::invalid(format!("pty.size.{name}: {number} is more than {}", u16::MAX))
            })
        };
        Ok((read("cols", cols)?, read("rows", rows)?))
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct StartRequest {
    pub(super) process: Option<ProcessConfig>,
    pub(super) pty: Option<Pty>,
    pub(super) tag: Option<String>,
    pub(super) stdin: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ProcessSelector {
    pub(super) pid: Option<Number>,
    pub(super) tag: Option<String>,
}

/// The process that a request means.
pub(super) fn selector(given: Option<ProcessSelector>) -> Result<Selector, Failure> {
    let given = given.unwrap_or(ProcessSelector { pid: None, tag: None });
    Ok(given.read()?)
}

#[derive(Debug, Deserialize)]
pub(super) struct ConnectRequest {
    pub(super) process: Option<ProcessSelector>,
}

#[derive(Debug, Deserialize)]
pub(super) struct UpdateRequest {
    pub(super) process: Option<ProcessSelector>,
    pub(super) pty: Option<Pty>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ProcessInput {
    pub(super) stdin: Option<Octets>,
    pub(super) pty: Option<Octets>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SendInputRequest {
    pub(super) process: Option<ProcessSelector>,
    pub(super) input: Option<ProcessInput>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StreamInputRequest {
    pub(super) start: Option<StreamInputStart>,
    pub(super) data: Option<StreamInputData>,
    pub(super) keepalive: Option<Empty>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StreamInputStart {
    pub(super) process: Option<ProcessSelector>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StreamInputData {
    pub(super) input: Option<ProcessInput>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SendSignalRequest {
    pub(super) process: Option<ProcessSelector>,
    pub(super) signal: Option<Choice>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CloseStdinRequest {
    pub(super) process: Option<ProcessSelector>,
}

#[derive(Debug, Serialize)]
pub(super) struct ListResponse {
    #[serde(serialize_with = "write_processes")]
    pub(super) processes: Vec<Arc<Job>>,
}

fn write_processes<S: Serializer>(jobs: &[Arc<Job>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(jobs.iter().map(|job| Process::of(job)))
}

#[derive(Debug, Serialize)]
struct Process<'a> {
    config: Config<'a>,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Config<'a> {
    cmd: &'a str,
    args: &'a [String],
    envs: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<&'a str>,
}

impl<'a> Process<'a> {
    fn of(job: &'a Job) -> Self {
        let request = job.request();
        Self {
            config: Config {
                cmd: &request.program,
                args: &request.arguments,
                envs: &request.env,
                cwd: request.cwd_asked.as_deref(),
            },
            pid: job.pid(),
            tag: request.tag.as_deref(),
        }
    }
}
