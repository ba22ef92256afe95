use super::wire::{Content, Event, EventError, results};
use crate::guest::{
    events::{PING_EVERY, push_line, response},
    lines::Lines,
    wire::unix_ms,
};
use atoll_guest::kernel;
use axum::{
    body::{Body, Bytes},
    response::Response,
};
use futures_util::stream;
use std::{
    convert::Infallible,
    time::{Instant, SystemTime},
};
use tokio::{sync::mpsc, time::timeout};

/// Answers with the events of a run of code as they come. When the client goes away this is
/// dropped, and the code is interrupted.
pub(super) fn follow(id: &str, happened: mpsc::Receiver<kernel::Event>) -> Response {
    let mut first = String::new();
    write(&mut first, "init", Content::Text(id));
    let follower = Follower { frame: first, ..Follower::new(happened) };
    let frames = stream::unfold(follower, |mut follower| async move {
        let frame = follower.next().await?;
        Some((Ok::<Bytes, Infallible>(frame), follower))
    });
    response(Body::from_stream(frames))
}

struct Follower {
    happened: mpsc::Receiver<kernel::Event>,
    stdout: Lines,
    stderr: Lines,
    started: Instant,
    /// What is to be sent next.
    frame: String,
    error: Option<EventError>,
    done: bool,
}

impl Follower {
    fn new(happened: mpsc::Receiver<kernel::Event>) -> Self {
        Self {
            happened,
            stdout: Lines::default(),
            stderr: Lines::default(),
            started: Instant::now(),
            frame: String::new(),
            error: None,
            done: false,
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        // Text without a line end yet makes no event; go on waiting then.
        while self.frame.is_empty() && !self.done {
            match timeout(PING_EVERY, self.happened.recv()).await {
                Ok(Some(event)) => self.take(event),
                Ok(None) => self.finish(),
                Err(_) => write(&mut self.frame, "ping", Content::Text("pong")),
            }
        }
        (!self.frame.is_empty()).then(|| std::mem::take(&mut self.frame).into())
    }

    fn take(&mut self, event: kernel::Event) {
        let frame = &mut self.frame;
        match event {
            kernel::Event::Accepted { count } => {
                write(frame, "execution_count", Content::ExecutionCount(count));
            }
            kernel::Event::Stdout(printed) => {
                let print = |line: &str| write(frame, "stdout", Content::Text(line));
                self.stdout.push(printed.text.as_bytes(), print);
            }
            kernel::Event::Stderr(printed) => {
                let print = |line: &str| write(frame, "stderr", Content::Text(line));
                self.stderr.push(printed.text.as_bytes(), print);
            }
            kernel::Event::Shown { data, .. } => {
                write(frame, "result", Content::Results(results(data)));
            }
            kernel::Event::Failed { name, value, traceback } => {
                self.fail(name, value, traceback);
            }
            kernel::Event::Died { reason } => {
                self.fail("KernelDied".to_owned(), reason, Vec::new())
            }
            kernel::Event::CutOff => {
                let value = "the context was deleted or restarted".to_owned();
                self.fail("ExecutionCutOff".to_owned(), value, Vec::new());
            }
        }
    }

    fn fail(&mut self, ename: String, evalue: String, traceback: Vec<String>) {
        self.error.get_or_insert(EventError { ename, evalue, traceback });
    }

    /// Exactly one of `execution_complete` and `error` comes last.
    fn finish(&mut self) {
        let frame = &mut self.frame;
        self.stdout.finish(|line| write(frame, "stdout", Content::Text(line)));
        self.stderr.finish(|line| write(frame, "stderr", Content::Text(line)));
        match self.error.take() {
            Some(error) => write(frame, "error", Content::Error(error)),
            None => {
                let elapsed = self.started.elapsed().as_millis() as u64;
                write(frame, "execution_complete", Content::ExecutionTime(elapsed));
            }
        }
        self.done = true;
    }
}

fn write(frame: &mut String, kind: &'static str, content: Content<'_>) {
    push_line(frame, &Event { kind, content, timestamp: unix_ms(SystemTime::now()) });
}
