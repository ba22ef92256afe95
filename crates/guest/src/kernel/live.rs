//! A kernel that is up, and one execution in it.

use super::{
    event::Event,
    message::{Message, Session, execute_request},
    orders::{Ending, Order, Orders},
    place,
    sink::Sink,
    start::{discard, send},
    text,
    zmtp::{Incoming, MESSAGE_BYTES_MAX, Socket},
};
use crate::{
    command::interrupt_group,
    environment::Variables,
    guest::Shared,
    process::{Exit, Reaper},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep_until, timeout};

/// How long after its reply a kernel may still publish what it printed.
const IDLE_GRACE: Duration = Duration::from_secs(2);
/// What a kernel published before it ended arrives within this time.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Code that nobody waits for any more is interrupted again if it goes on, and its kernel is ended
/// if all that does not help: it would stay occupied for ever.
const INTERRUPT_AGAIN: Duration = Duration::from_secs(5);
const INTERRUPTS_MAX: u32 = 12;
const TAIL_BYTES_MAX: usize = 4096;

/// A kernel's process and the connections to it.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) pid: i32,
    /// Nothing before the kernel has come up.
    pub(super) exit: Option<Exit>,
    pub(super) shell: Socket,
    pub(super) iopub: Socket,
    pub(super) control: Socket,
    pub(super) session: Session,
    pub(super) takes_interrupts: bool,
    /// The sandbox's variables as the kernel has them.
    pub(super) applied: Variables,
    /// Variables that belong to the kernel itself.
    pub(super) own_variables: BTreeSet<String>,
    pub(super) folder: PathBuf,
    pub(super) guard: Guard,
}

/// Ends a kernel that nobody stopped, as when all that the agent runs is dropped at once.
#[derive(Debug)]
pub(super) struct Guard {
    pid: i32,
    folder: PathBuf,
    reaper: Option<Reaper>,
}

impl Guard {
    pub(super) fn new(pid: i32, folder: PathBuf, reaper: Reaper) -> Self {
        Self { pid, folder, reaper: Some(reaper) }
    }

    fn disarm(&mut self) {
        self.reaper = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(reaper) = &self.reaper {
            reaper.signal_group(self.pid, libc::SIGKILL);
            place::remove(&self.folder);
        }
    }
}

/// How far an execution has come.
struct Progress {
    id: String,
    accepted: bool,
    replied: bool,
    idle: bool,
    failed: bool,
    /// An error that only the reply has told so far.
    reply_error: Option<Event>,
    last_word: Instant,
    interrupt: Interrupt,
    interrupts: u32,
}

/// Whether the execution is to be stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interrupt {
    No,
    /// As soon as the kernel is at it; a signal before that would be lost.
    Once,
    /// Nobody is waiting: at this moment, and again later.
    At(Instant),
}

impl Live {
    /// Runs code to its end. What it shows goes to the sink; a silent execution shows nothing.
    pub(super) async fn run(
        &mut self,
        shared: &Shared,
        code: &str,
        sink: &mut Sink,
        orders: &mut Orders,
    ) -> Ending {
        let (id, frames) =
            self.session.request("execute_request", &execute_request(code, sink.is_silent()));
        if let Err(error) = send(&mut self.shell, &frames).await {
            return self.lost(shared, error, false);
        }
        let mut progress = Progress::new(id);
        while !progress.is_over() || sink.has_pending() {
            let room = sink.has_room();
            let interrupt_at = progress.interrupt_at();
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(Order::Interrupt) => progress.want_interrupt(),
                    other => return Ending::Ordered(other),
                },
                listened = sink.step(), if !progress.is_abandoned() => if !listened {
                    progress.interrupt = Interrupt::At(Instant::now());
                },
                () = sleep_until(interrupt_at.unwrap_or_else(Instant::now)), if interrupt_at.is_some() => {
                    if progress.interrupts == INTERRUPTS_MAX {
                        let reason = "it did not let itself be interrupted".to_owned();
                        return Ending::Died { reason, began: true };
                    }
                    self.interrupt(shared).await;
                    progress.interrupted();
                }
                published = self.iopub.receive(), if room => match published {
                    Ok(incoming) => progress.hear(&self.session, incoming, sink),
                    Err(error) => return self.end(shared, error, &mut progress, sink).await,
                },
                replied = self.shell.receive() => match replied {
                    Ok(incoming) => progress.take_reply(&self.session, incoming),
                    Err(error) => return self.end(shared, error, &mut progress, sink).await,
                },
                answered = self.control.receive() => if let Err(error) = answered {
                    return self.end(shared, error, &mut progress, sink).await;
                },
                () = sleep_until(progress.last_word + IDLE_GRACE),
                    if progress.replied && !progress.idle && room => progress.idle = true,
            }
            if progress.is_over() {
                progress.conclude(sink);
            }
        }
        Ending::Done
    }

    /// Throws away what the kernel says between executions; answers only when it has ended.
    pub(super) async fn idle(&mut self) {
        loop {
            let heard = tokio::select! {
                heard = self.iopub.receive() => heard,
                heard = self.shell.receive() => heard,
                heard = self.control.receive() => heard,
            };
            if heard.is_err() {
                return;
            }
        }
    }

    async fn interrupt(&mut self, shared: &Shared) {
        if self.takes_interrupts {
            let (_, frames) = self.session.request("interrupt_request", &json!({}));
            // A kernel that is gone is noticed by whoever reads from it.
            send(&mut self.control, &frames).await.ok();
        } else {
            shared.reaper.signal_group(self.pid, libc::SIGINT);
        }
    }

    /// The kernel closed a connection: it has ended, or must.
    async fn end(
        &mut self,
        shared: &Shared,
        error: io::Error,
        progress: &mut Progress,
        sink: &mut Sink,
    ) -> Ending {
        while let Ok(Ok(incoming)) = timeout(LAST_WORDS, self.iopub.receive()).await {
            if !sink.has_room() {
                break;
            }
            progress.hear(&self.session, incoming, sink);
        }
        let exit = self.exit.take();
        match timeout(LAST_WORDS, async { exit?.await.ok() }).await {
            Ok(Some(status)) => {
                let reason = format!("the kernel ended with {status}");
                Ending::Died { reason, began: progress.accepted }
            }
            _ => self.lost(shared, error, progress.accepted),
        }
    }

    fn lost(&self, shared: &Shared, error: io::Error, began: bool) -> Ending {
        shared.reaper.signal_group(self.pid, libc::SIGKILL);
        Ending::Died { reason: format!("the connection to the kernel broke: {error}"), began }
    }

    /// Ends the process, with force after a while, and removes its folder.
    pub(super) async fn stop(mut self, shared: &Arc<Shared>) {
        self.guard.disarm();
        if !interrupt_group(shared, self.pid) {
            shared.reaper.kill_remains(self.pid);
        }
        discard(shared, self.folder).await;
    }
}

impl Progress {
    fn new(id: String) -> Self {
        Self {
            id,
            accepted: false,
            replied: false,
            idle: false,
            failed: false,
            reply_error: None,
            last_word: Instant::now(),
            interrupt: Interrupt::No,
            interrupts: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.replied && self.idle
    }

    fn is_abandoned(&self) -> bool {
        matches!(self.interrupt, Interrupt::At(_))
    }

    fn want_interrupt(&mut self) {
        if self.interrupt == Interrupt::No {
            self.interrupt = Interrupt::Once;
        }
    }

    fn interrupt_at(&self) -> Option<Instant> {
        match self.interrupt {
            _ if !self.accepted || self.replied => None,
            Interrupt::No => None,
            Interrupt::Once => Some(Instant::now()),
            Interrupt::At(moment) => Some(moment),
        }
    }

    fn interrupted(&mut self) {
        self.interrupts += 1;
        self.interrupt = match self.interrupt {
            Interrupt::At(_) => Interrupt::At(Instant::now() + INTERRUPT_AGAIN),
            _ => Interrupt::No,
        };
    }

    /// Takes what the kernel publishes.
    fn hear(&mut self, session: &Session, incoming: Incoming, sink: &mut Sink) {
        self.last_word = Instant::now();
        let Incoming::Message(frames) = incoming else {
            let text = format!("an output of more than {MESSAGE_BYTES_MAX} bytes was dropped\n");
            return sink.push(Event::Stderr(text::now(text)), 0);
        };
        let Some(message) = session.read(&frames).filter(|m| m.parent_id == self.id) else {
            return;
        };
        let Message { header, content, .. } = message;
        let bytes = frames.iter().map(bytes::Bytes::len).sum();
        match header.msg_type.as_str() {
            "status" => match content["execution_state"].as_str() {
                Some("busy") => self.accepted = true,
                Some("idle") => self.idle = true,
                _ => {}
            },
            "execute_input" => {
                self.accepted = true;
                let count = content["execution_count"].as_u64().unwrap_or_default();
                sink.push(Event::Accepted { count }, bytes);
            }
            "stream" => {
                let text = text::said(text_of(&content["text"]), header.date);
                let is_error = content["name"] == "stderr";
                let event = if is_error { Event::Stderr(text) } else { Event::Stdout(text) };
                sink.push(event, bytes);
            }
            kind @ ("display_data" | "execute_result") => {
                if let Value::Object(mut content) = content
                    && let Some(Value::Object(data)) = content.remove("data")
                {
                    sink.push(Event::Shown { is_main: kind == "execute_result", data }, bytes);
                }
            }
            "error" if !self.failed => {
                self.failed = true;
                sink.push(failure(&content), bytes);
            }
            _ => {}
        }
    }

    fn take_reply(&mut self, session: &Session, incoming: Incoming) {
        let Incoming::Message(frames) = incoming else { return };
        let Some(message) = session.read(&frames).filter(|m| m.parent_id == self.id) else {
            return;
        };
        (self.replied, self.last_word) = (true, Instant::now());
        match message.content["status"].as_str() {
            Some("error") => self.reply_error = Some(failure(&message.content)),
            Some("abort" | "aborted") => {
                let (name, value) = ("ExecutionAborted", "Execution was aborted");
                self.reply_error = Some(Event::Failed {
                    name: name.to_owned(),
                    value: value.to_owned(),
                    traceback: Vec::new(),
                });
            }
            _ => {}
        }
    }

    /// Tells an error that the kernel did not publish.
    fn conclude(&mut self, sink: &mut Sink) {
        if let Some(error) = self.reply_error.take().filter(|_| !self.failed) {
            self.failed = true;
            sink.push(error, 0);
        }
    }
}

fn failure(content: &Value) -> Event {
    let lines = content["traceback"].as_array().into_iter().flatten();
    Event::Failed {
        name: text_of(&content["ename"]),
        value: text_of(&content["evalue"]),
        traceback: lines.map(text_of).collect(),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The end of what a kernel printed past its channels.
#[derive(Debug, Clone, Default)]
pub(super) struct Tail {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Tail {
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        let over = kept.len().saturating_sub(TAIL_BYTES_MAX);
        kept.drain(..over);
    }

    /// It as the end of a sentence, if there is any.
    pub(super) fn said(&self) -> String {
        let kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let text = text.trim();
        if text.is_empty() { String::new() } else { format!("; it said: {text}") }
    }
}
