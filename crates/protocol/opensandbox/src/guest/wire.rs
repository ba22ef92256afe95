//! The execd API's JSON shapes.

use atoll_guest::files::{self, Kind, mode_to_digits};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::SystemTime};

#[derive(Debug, Deserialize)]
pub(super) struct CommandRequest {
    pub(super) command: Option<String>,
    pub(super) argv: Option<Vec<String>>,
    pub(super) cwd: Option<String>,
    pub(super) background: Option<bool>,
    pub(super) timeout: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) envs: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Serialize)]
pub(super) struct CommandStatus {
    pub(super) id: String,
    pub(super) content: String,
    pub(super) running: bool,
    pub(super) exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    pub(super) started_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finished_at: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SessionRequest {
    pub(super) cwd: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TerminalRequest {
    pub(super) cwd: Option<String>,
    pub(super) command: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct SessionOpened {
    pub(super) session_id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct SessionRun {
    pub(super) command: Option<String>,
    pub(super) cwd: Option<String>,
    pub(super) timeout: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct TerminalCondition {
    pub(super) session_id: String,
    pub(super) running: bool,
    pub(super) output_offset: u64,
}

/// One event of a stream.
#[derive(Debug, Serialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) execution_time: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<EventError>,
    /// Unix time in milliseconds; clients drop events without one.
    pub(super) timestamp: i64,
}

#[derive(Debug, Serialize)]
pub(super) struct EventError {
    pub(super) ename: &'static str,
    /// The exit code in decimal digits, as text.
    pub(super) evalue: String,
    pub(super) traceback: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct FileInfo {
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    size: u64,
    modified_at: String,
    created_at: String,
    owner: String,
    group: String,
    mode: u32,
}

impl From<files::Info> for FileInfo {
    fn from(info: files::Info) -> Self {
        let kind = match info.kind {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "symlink",
            Kind::Other => "other",
        };
        Self {
            path: info.path.to_string_lossy().into_owned(),
            kind,
            size: info.size,
            modified_at: rfc3339(info.modified_at),
            created_at: rfc3339(info.created_at),
            owner: info.owner,
            group: info.group,
            mode: mode_to_digits(info.mode),
        }
    }
}

/// Permission changes; SDKs send nulls for what stays, and 0 for a mode that stays.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Permissions {
    mode: Option<u32>,
    owner: Option<String>,
    group: Option<String>,
}

impl TryFrom<Permissions> for files::Permissions {
    type Error = atoll_guest::Error;

    fn try_from(wire: Permissions) -> Result<Self, Self::Error> {
        let mode = wire.mode.filter(|digits| *digits != 0);
        Ok(Self {
            mode: mode.map(files::mode_from_digits).transpose()?,
            owner: wire.owner.filter(|owner| !owner.is_empty()),
            group: wire.group.filter(|group| !group.is_empty()),
        })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Move {
    pub(super) src: String,
    pub(super) dest: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Replacement {
    pub(super) old: String,
    pub(super) new: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replaced {
    pub(super) replaced_count: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct UploadMetadata {
    pub(super) path: String,
    #[serde(flatten)]
    pub(super) permissions: Permissions,
}

#[derive(Debug, Serialize)]
pub(super) struct Metrics {
    pub(super) cpu_count: f64,
    pub(super) cpu_used_pct: f64,
    pub(super) mem_total_mib: f64,
    pub(super) mem_used_mib: f64,
    pub(super) timestamp: i64,
}

/// RFC 3339 in UTC; a moment outside what it can write becomes the epoch.
pub(super) fn rfc3339(moment: SystemTime) -> String {
    Timestamp::try_from(moment).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

pub(super) fn unix_ms(moment: SystemTime) -> i64 {
    Timestamp::try_from(moment).unwrap_or(Timestamp::UNIX_EPOCH).as_millisecond()
}
