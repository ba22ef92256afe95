//! Running a command and reading its stream of events.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Client;
use crate::error::Error;

/// Longest single event.
const EVENT_BYTES_MAX: usize = 8 << 20;

/// A command to run, without a shell.
#[derive(Serialize)]
pub(crate) struct Command {
    pub argv: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub envs: BTreeMap<String, String>,
    /// Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
}

/// One line that the command printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Stdout(String),
    Stderr(String),
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// By itself, with this status.
    Exit(u8),
    /// By a signal or its timeout; the agent's words.
    Stopped(String),
}

impl Client {
    /// Runs `command` in a sandbox; `show` gets each line as it comes.
    pub(crate) async fn exec(
        &self,
        id: &str,
        command: &Command,
        show: &mut dyn FnMut(Output) -> Result<(), Error>,
    ) -> Result<Outcome, Error> {
        let url = format!("{}/command", self.agent(id).await?);
        let mut response = self.send(self.request_url(Method::POST, url).json(command)).await?;
        let mut events = Events::default();
        while let Some(piece) = response.chunk().await.map_err(|_| Error::CutOff)? {
            for event in events.push(&piece)? {
                match event.meaning() {
                    Meaning::Output(output) => show(output)?,
                    Meaning::End(outcome) => return Ok(outcome),
                    Meaning::Nothing => {}
                }
            }
        }
        Err(Error::CutOff)
    }
}

/// Cuts a byte stream into events: JSON objects, each followed by an empty line.
#[derive(Default)]
pub(super) struct Events {
    buffer: Vec<u8>,
}

impl Events {
    /// The events that `piece` completes.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<Vec<Event>, Error> {
        // An end may lie across two pieces, so the last byte before is looked at again.
        let mut look_from = self.buffer.len().saturating_sub(1);
        self.buffer.extend_from_slice(piece);
        let mut found = Vec::new();
        while let Some(at) = self.buffer[look_from..].windows(2).position(|w| w == b"\n\n") {
            let rest = self.buffer.split_off(look_from + at + 2);
            let block = std::mem::replace(&mut self.buffer, rest);
            look_from = 0;
            found.extend(Event::parse(&block)?);
        }
        if self.buffer.len() > EVENT_BYTES_MAX {
            return Err(garbled("an event is too long"));
        }
        Ok(found)
    }
}

/// One event, as far as we need it.
#[derive(Deserialize)]
pub(super) struct Event {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    ename: String,
    #[serde(default)]
    evalue: String,
    /// Text, a list of texts, or nothing.
    #[serde(default)]
    traceback: Value,
}

/// What an event says to us.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Output(Output),
    End(Outcome),
    Nothing,
}

impl Event {
    /// Reads bare JSON as well as `data: {…}`; an empty block is none.
    fn parse(block: &[u8]) -> Result<Option<Self>, Error> {
        let block = block.trim_ascii();
        let json = block.strip_prefix(b"data:").unwrap_or(block).trim_ascii();
        if json.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(json).map(Some).map_err(|error| garbled(&error.to_string()))
    }

    pub(super) fn meaning(self) -> Meaning {
        let line = |text: Option<String>| {
            // A blank line comes as the newline itself.
            let mut line = text.unwrap_or_default();
            if line != "\n" {
                line.push('\n');
            }
            line
        };
        match self.kind.as_str() {
            "stdout" => Meaning::Output(Output::Stdout(line(self.text))),
            "stderr" => Meaning::Output(Output::Stderr(line(self.text))),
            "execution_complete" => Meaning::End(Outcome::Exit(0)),
            "error" => Meaning::End(self.error.map_or(Outcome::Exit(1), Failure::outcome)),
            _ => Meaning::Nothing,
        }
    }
}

impl Failure {
    /// A value that is no exit status says that there was none; the traceback says why.
    fn outcome(self) -> Outcome {
        if let Ok(code) = self.evalue.trim().parse() {
            return Outcome::Exit(code);
        }
        let first = self.traceback.get(0).unwrap_or(&self.traceback).as_str();
        Outcome::Stopped(first.map_or(format!("{} {}", self.ename, self.evalue), str::to_owned))
    }
}

fn garbled(why: &str) -> Error {
    Error::Garbled { request: "POST /command".to_owned(), why: why.to_owned() }
}
