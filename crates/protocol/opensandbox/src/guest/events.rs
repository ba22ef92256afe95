use super::{
    lines::Lines,
    wire::{Event, EventError, unix_ms},
};
use atoll_guest::command::{Outcome, Output};
use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde::Serialize;
use std::time::{Duration, SystemTime};
use tokio::{
    sync::mpsc,
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};

pub(super) const PING_EVERY: Duration = Duration::from_secs(3);
/// Output that is ready is sent in one piece up to about this size.
const BATCH_BYTES: usize = 64 * 1024;

/// Answers with the events of a command as they come; the stream ends right after the last.
pub(super) fn follow(id: &str, output: mpsc::Receiver<Output>) -> Response {
    let follower = Follower::new(id, output);
    let frames = stream::unfold(follower, |mut follower| async move {
        let frame = follower.next().await?;
        Some((Ok::<_, std::convert::Infallible>(frame), follower))
    });
    response(Body::from_stream(frames))
}

/// Answers that a command was started in the background.
pub(super) fn started(id: &str) -> Response {
    let mut frame = String::new();
    write_event(&mut frame, "init", |event| event.text = Some(id));
    write_event(&mut frame, "execution_complete", |event| event.execution_time = Some(0));
    response(Body::from(frame))
}

pub(super) fn response(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body).into_response()
}

struct Follower {
    first: Option<Bytes>,
    output: mpsc::Receiver<Output>,
    stdout: Lines,
    stderr: Lines,
    ping: Interval,
    done: bool,
}

impl Follower {
    fn new(id: &str, output: mpsc::Receiver<Output>) -> Self {
        let mut first = String::new();
        write_event(&mut first, "init", |event| event.text = Some(id));
        let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            first: Some(first.into()),
            output,
            stdout: Lines::default(),
            stderr: Lines::default(),
            ping,
            done: false,
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let mut frame = String::new();
        // Bytes without a line end yet make no event; go on waiting then.
        while frame.is_empty() && !self.done {
            tokio::select! {
                biased;
                item = self.output.recv() => self.take(item, &mut frame),
                _ = self.ping.tick() => {
                    write_event(&mut frame, "ping", |event| event.text = Some("pong"));
                }
            }
            while !self.done && frame.len() < BATCH_BYTES {
                let Ok(item) = self.output.try_recv() else { break };
                self.take(Some(item), &mut frame);
            }
        }
        (!frame.is_empty()).then(|| frame.into())
    }

    fn take(&mut self, item: Option<Output>, frame: &mut String) {
        match item {
            Some(Output::Stdout(bytes)) => {
                self.stdout.push(&bytes, |line| write_line(frame, "stdout", line))
            }
            Some(Output::Stderr(bytes)) => {
                self.stderr.push(&bytes, |line| write_line(frame, "stderr", line))
            }
            Some(Output::Ended(outcome)) => {
                self.stdout.finish(|line| write_line(frame, "stdout", line));
                self.stderr.finish(|line| write_line(frame, "stderr", line));
                write_end(frame, &outcome);
                self.done = true;
            }
            None => self.done = true,
        }
    }
}

fn write_line(frame: &mut String, kind: &'static str, line: &str) {
    write_event(frame, kind, |event| event.text = Some(line));
}

/// Exactly one of `execution_complete` and `error`. The error's value is the exit code; a command
/// that a signal or its timeout ended has -1, as clients of this contract expect, and the
/// traceback says which.
fn write_end(frame: &mut String, outcome: &Outcome) {
    if outcome.code == 0 && outcome.problem.is_none() {
        let elapsed = outcome.elapsed.as_millis() as u64;
        return write_event(frame, "execution_complete", |e| e.execution_time = Some(elapsed));
    }
    let reason = outcome.problem.clone().unwrap_or_else(|| format!("exit status {}", outcome.code));
    write_event(frame, "error", |event| {
        event.error = Some(EventError {
            ename: "CommandExecError",
            evalue: outcome.code.to_string(),
            traceback: vec![reason],
        });
    });
}

fn write_event<'a>(frame: &mut String, kind: &'static str, fill: impl FnOnce(&mut Event<'a>)) {
    let timestamp = unix_ms(SystemTime::now());
    let mut event = Event { kind, text: None, execution_time: None, error: None, timestamp };
    fill(&mut event);
    push_line(frame, &event);
}

/// Appends anything as bare JSON on one line, then an empty line.
pub(super) fn push_line(frame: &mut String, event: &impl Serialize) {
    let json = serde_json::to_string(event).expect("events hold nothing that JSON cannot");
    // Some clients split lines at these too; inside JSON they can only stand in strings.
    for c in json.chars() {
        match c {
            '\u{85}' | '\u{2028}' | '\u{2029}' => frame.push_str(&format!("\\u{:04x}", c as u32)),
            c => frame.push(c),
        }
    }
    frame.push_str("\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_stay_on_one_line() {
        let mut frame = String::new();
        write_line(&mut frame, "stdout", "a\u{85}b\u{2028}c\u{2029}d\n\r");
        let json = frame.strip_suffix("\n\n").unwrap();
        assert!(!json.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']));
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(value["text"], "a\u{85}b\u{2028}c\u{2029}d\n\r");
        assert!(value["timestamp"].is_i64());
    }
}
