use crate::guest::{
    connect::{Code, Failure, end_frame, frames, stream_response},
    frame,
    json::push_octets,
};
use atoll_guest::{
    command::{Outcome, Output},
    job::Job,
};
use axum::{body::Body, response::Response};
use bytes::Bytes;
use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};
use tokio::{
    sync::mpsc,
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until},
};

/// Output that is ready is sent in one piece up to about this size.
const BATCH_BYTES: usize = 128 * 1024;
/// How long a process that has been killed at its deadline may take to die.
const DEATH_GRACE: Duration = Duration::from_secs(2);

/// Makes the events of one process for one client.
pub(super) struct Follower {
    first: Option<Bytes>,
    output: mpsc::Receiver<Output>,
    has_terminal: bool,
    keepalive: Interval,
    /// When the stream ends though the process may not.
    deadline: Option<(Instant, Duration)>,
    /// The process's own deadline, which is this stream's.
    owns_deadline: Option<Duration>,
    done: bool,
}

impl Follower {
    /// The stream of whoever starts a process: the deadline kills the process, which ends the
    /// stream.
    pub(super) fn of_start(
        job: &Job,
        output: mpsc::Receiver<Output>,
        keepalive: Duration,
        timeout: Option<Duration>,
    ) -> Self {
        let deadline = timeout.map(|time| (Instant::now() + time + DEATH_GRACE, time));
        Self::new(job, output, keepalive, deadline, timeout)
    }

    /// The stream of whoever comes later: the deadline ends the stream alone.
    pub(super) fn of_connect(
        job: &Job,
        output: mpsc::Receiver<Output>,
        keepalive: Duration,
        timeout: Option<Duration>,
    ) -> Self {
        let deadline = timeout.map(|time| (Instant::now() + time, time));
        Self::new(job, output, keepalive, deadline, None)
    }

    fn new(
        job: &Job,
        output: mpsc::Receiver<Output>,
        keepalive: Duration,
        deadline: Option<(Instant, Duration)>,
        owns_deadline: Option<Duration>,
    ) -> Self {
        let mut first = Vec::new();
        write(&mut first, &format!(r#"{{"start":{{"pid":{}}}}}"#, job.pid()));
        let mut keepalive = interval_at(Instant::now() + keepalive, keepalive);
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            first: Some(first.into()),
            output,
            has_terminal: job.request().terminal.is_some(),
            keepalive,
            deadline,
            owns_deadline,
            done: false,
        }
    }

    /// The stream as an answer.
    pub(super) fn response(self) -> Response {
        stream_response(Body::from_stream(frames(self, async |mut follower: Self| {
            follower.next().await.map(|bytes| (bytes, follower))
        })))
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.done {
            return None;
        }
        let mut batch = Vec::new();
        let over = self.deadline.map(|(at, _)| at);
        tokio::select! {
            biased;
            output = self.output.recv() => self.take(output, &mut batch),
            () = sleep_until(over.unwrap_or_else(Instant::now)), if over.is_some() => self.expire(&mut batch),
            _ = self.keepalive.tick() => write(&mut batch, r#"{"keepalive":{}}"#),
        }
        while !self.done && batch.len() < BATCH_BYTES {
            let Ok(output) = self.output.try_recv() else { break };
            self.take(Some(output), &mut batch);
        }
        Some(batch.into())
    }

    fn take(&mut self, output: Option<Output>, batch: &mut Vec<u8>) {
        self.keepalive.reset();
        let (stream, bytes) = match output {
            Some(Output::Stdout(bytes)) if self.has_terminal => ("pty", bytes),
            Some(Output::Stdout(bytes)) => ("stdout", bytes),
            Some(Output::Stderr(bytes)) => ("stderr", bytes),
            Some(Output::Ended(outcome)) => return self.finish(&outcome, batch),
            None => {
                let problem = "this client took no output for too long and was left behind; \
                    the process runs on, connect to it again";
                return self.fail(&Failure::new(Code::ResourceExhausted, problem), batch);
            }
        };
        let mut event = String::with_capacity(bytes.len() * 4 / 3 + 32);
        event.push_str(r#"{"data":{""#);
        event.push_str(stream);
        event.push_str("\":\"");
        push_octets(&mut event, &bytes);
        event.push_str("\"}}");
        write(batch, &event);
    }

    fn finish(&mut self, outcome: &Outcome, batch: &mut Vec<u8>) {
        if let Some(time) = self.owns_deadline.filter(|_| outcome.expired) {
            return self.fail(&Failure::deadline(time), batch);
        }
        write(batch, &ended(outcome));
        batch.extend(end_frame(None));
        self.done = true;
    }

    fn expire(&mut self, batch: &mut Vec<u8>) {
        let time = self.deadline.map_or(Duration::ZERO, |(_, time)| time);
        self.fail(&Failure::deadline(time), batch);
    }

    fn fail(&mut self, failure: &Failure, batch: &mut Vec<u8>) {
        batch.extend(end_frame(Some(failure)));
        self.done = true;
    }
}

/// Appends a frame with one event, given as JSON.
fn write(batch: &mut Vec<u8>, event: &str) {
    frame::write(batch, 0, format!(r#"{{"event":{event}}}"#).as_bytes());
}

/// The event of an end, in the words of the original.
fn ended(outcome: &Outcome) -> String {
    let status = outcome.status.unwrap_or_else(|| ExitStatus::from_raw(outcome.code << 8));
    let (code, text) = match status.signal() {
        Some(signal) => {
            let dumped = if status.core_dumped() { " (core dumped)" } else { "" };
            (-1, format!("signal: {}{dumped}", signal_name(signal)))
        }
        None => {
            let code = status.code().unwrap_or(-1);
            (code, format!("exit status {code}"))
        }
    };
    let exited = status.signal().is_none();
    let mut event = serde_json::json!({"exitCode": code, "exited": exited, "status": text});
    if !status.success() {
        event["error"] = text.into();
    }
    serde_json::json!({ "end": event }).to_string()
}

fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 15] = [
        "hangup",
        "interrupt",
        "quit",
        "illegal instruction",
        "trace/breakpoint trap",
        "aborted",
        "bus error",
        "floating point exception",
        "killed",
        "user defined signal 1",
        "segmentation fault",
        "user defined signal 2",
        "broken pipe",
        "alarm clock",
        "terminated",
    ];
    let known = usize::try_from(signal - 1).ok().and_then(|index| NAMES.get(index));
    known.map_or_else(|| format!("signal {signal}"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_in_the_original_words() {
        let outcome = |raw| Outcome {
            code: 0,
            problem: None,
            status: Some(ExitStatus::from_raw(raw)),
            expired: false,
            elapsed: Duration::ZERO,
        };
        let told = |raw| serde_json::from_str::<serde_json::Value>(&ended(&outcome(raw))).unwrap();
        let end = |code: i32, exited: bool, status: &str, error: Option<&str>| {
            let mut end = serde_json::json!({"exitCode": code, "exited": exited, "status": status});
            error.into_iter().for_each(|error| end["error"] = error.into());
            serde_json::json!({ "end": end })
        };
        assert_eq!(told(0), end(0, true, "exit status 0", None));
        assert_eq!(told(3 << 8), end(3, true, "exit status 3", Some("exit status 3")));
        assert_eq!(told(9), end(-1, false, "signal: killed", Some("signal: killed")));
        assert_eq!(told(15)["end"]["status"], "signal: terminated");
        let dumped = "signal: segmentation fault (core dumped)";
        assert_eq!(told(11 | 0x80)["end"]["status"], dumped);
        assert_eq!(told(40)["end"]["status"], "signal: signal 40");
    }
}
