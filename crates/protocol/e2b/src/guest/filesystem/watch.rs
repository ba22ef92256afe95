//! Watching: as a stream, or as a watcher that is asked from time to time.

use super::{
    Shared,
    wire::{Empty, Events, FilesystemEvent, WatchRequest, WatcherAnswer, WatcherRequest},
};
use crate::guest::{
    caller::Caller,
    connect::{
        self, Code, Failure, MESSAGE_BYTES_MAX, end_frame, frames, message_frame, stream_response,
    },
    files::PREFIX,
};
use atoll_guest::{
    Error,
    watch::{Event, Lost, Watcher, Wish},
};
use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

/// Events that are ready are sent in one piece up to about this size.
const BATCH_BYTES: usize = 64 * 1024;
/// Events of one answer to whoever asks.
const ANSWER_EVENTS_MAX: usize = 8192;

async fn watcher(caller: &Caller, asked: WatchRequest) -> Result<Watcher, Failure> {
    let wish = Wish {
        recursive: asked.recursive.unwrap_or(false),
        entry_prefix: asked.include_entry.unwrap_or(false).then_some(PREFIX),
        network_mounts: asked.allow_network_mounts.unwrap_or(false),
    };
    let path = caller.path(&asked.path.unwrap_or_default())?;
    Ok(caller.guest.watches().watch(path, wish).await?)
}

fn lost(Lost: Lost) -> Failure {
    let problem = "events were lost because they came faster than they were taken; look at the \
        directory anew and watch again";
    Failure::new(Code::ResourceExhausted, problem)
}

pub(super) async fn create(State(guest): Shared, request: Request) -> Response {
    let create = async |caller: Caller, asked: WatchRequest| {
        let watcher = watcher(&caller, asked).await?;
        Ok(WatcherAnswer { watcher_id: caller.guest.watches().keep(watcher) })
    };
    connect::unary(guest, request, MESSAGE_BYTES_MAX, create).await
}

fn id(asked: WatcherRequest) -> Result<String, Failure> {
    let problem = || Error::Invalid { field: "watcherId", problem: "is empty".to_owned() };
    Ok(asked.watcher_id.filter(|id| !id.is_empty()).ok_or_else(problem)?)
}

pub(super) async fn events(State(guest): Shared, request: Request) -> Response {
    let events = async |caller: Caller, asked: WatcherRequest| {
        let watcher = caller.guest.watches().find(&id(asked)?)?;
        let mut events = Vec::new();
        while events.len() < ANSWER_EVENTS_MAX
            && let Some(event) = watcher.try_next()
        {
            match event {
                Ok(event) => events.push(FilesystemEvent::new(&event)),
                // What came before is told first; the loss is known for good.
                Err(_) if !events.is_empty() => {
                    watcher.remember_loss();
                    break;
                }
                Err(gap) => return Err(lost(gap)),
            }
        }
        Ok(Events { events })
    };
    connect::unary(guest, request, MESSAGE_BYTES_MAX, events).await
}

pub(super) async fn remove(State(guest): Shared, request: Request) -> Response {
    let remove = async |caller: Caller, asked: WatcherRequest| {
        caller.guest.watches().remove(&id(asked)?)?;
        Ok(Empty {})
    };
    connect::unary(guest, request, MESSAGE_BYTES_MAX, remove).await
}

pub(super) async fn stream(State(guest): Shared, request: Request) -> Response {
    let stream = async |caller: Caller, asked: WatchRequest| {
        let timeout = connect::timeout(&caller.headers)?;
        let watcher = watcher(&caller, asked).await?;
        let stream = Stream::new(watcher, connect::keepalive(&caller.headers), timeout);
        Ok(stream.response())
    };
    connect::streaming(guest, request, stream).await
}

/// Makes the messages of one stream.
struct Stream {
    watcher: Watcher,
    is_begun: bool,
    keepalive: Interval,
    deadline: Option<(Instant, Duration)>,
    is_done: bool,
}

impl Stream {
    fn new(watcher: Watcher, keepalive: Duration, timeout: Option<Duration>) -> Self {
        let mut keepalive = interval_at(Instant::now() + keepalive, keepalive);
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let deadline = timeout.map(|time| (Instant::now() + time, time));
        Self { watcher, is_begun: false, keepalive, deadline, is_done: false }
    }

    fn response(self) -> Response {
        stream_response(Body::from_stream(frames(self, async |mut stream: Self| {
            stream.next().await.map(|bytes| (bytes, stream))
        })))
    }

    async fn next(&mut self) -> Option<Bytes> {
        if !self.is_begun {
            self.is_begun = true;
            return Some(message_frame(&json!({"start": {}})).into());
        }
        if self.is_done {
            return None;
        }
        let mut batch = Vec::new();
        let (over, time) = self.deadline.unwrap_or((Instant::now(), Duration::ZERO));
        tokio::select! {
            biased;
            event = self.watcher.next() => self.take(event, &mut batch),
            () = sleep_until(over), if self.deadline.is_some() => {
                self.fail(&Failure::deadline(time), &mut batch);
            }
            _ = self.keepalive.tick() => batch.extend(message_frame(&json!({"keepalive": {}}))),
        }
        while !self.is_done && batch.len() < BATCH_BYTES {
            let Some(event) = self.watcher.try_next() else { break };
            self.take(event, &mut batch);
        }
        Some(batch.into())
    }

    fn take(&mut self, event: Result<Event, Lost>, batch: &mut Vec<u8>) {
        self.keepalive.reset();
        match event {
            Ok(event) => {
                let message = json!({"filesystem": FilesystemEvent::new(&event)});
                batch.extend(message_frame(&message));
            }
            Err(gap) => self.fail(&lost(gap), batch),
        }
    }

    fn fail(&mut self, failure: &Failure, batch: &mut Vec<u8>) {
        batch.extend(end_frame(Some(failure)));
        self.is_done = true;
    }
}
