use super::{Outcome, Record};
use crate::{Result, guest::Shared, process::Spawned, ring::Ring};
use bytes::{Bytes, BytesMut};
use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    sync::mpsc,
    time::{Instant, sleep_until},
};

const READ_BYTES: usize = 32 * 1024;
/// How long a pipe may stay open after the command ended, because a grandchild holds it.
const DRAIN_GRACE: Duration = Duration::from_millis(100);
/// What two pipes of the largest usual size can hold when the command ends.
const DRAIN_BYTES: usize = 2 << 20;

/// What a command delivers.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Bytes it printed.
    Stdout(Bytes),
    /// Bytes it printed as errors.
    Stderr(Bytes),
    /// It has ended; nothing follows.
    Ended(Outcome),
}

impl Output {
    fn len(&self) -> usize {
        match self {
            Self::Stdout(bytes) | Self::Stderr(bytes) => bytes.len(),
            Self::Ended(_) => 0,
        }
    }
}

/// Where output goes.
#[derive(Debug)]
pub(crate) enum Sink {
    /// To whoever listens; dropped when nobody does.
    Live(mpsc::Sender<Output>),
    /// To a log.
    Log(Arc<Ring>),
}

/// Moves a command's output to its sink until the command has ended and its pipes are drained.
#[derive(Debug)]
pub(crate) struct Pump {
    shared: Arc<Shared>,
    record: Arc<Record>,
    sink: Sink,
    ended: Option<ExitStatus>,
}

enum Event {
    Stdout(Bytes),
    Stderr(Bytes),
    Ended(ExitStatus),
    GraceOver,
}

impl Pump {
    pub(crate) fn new(shared: Arc<Shared>, record: Arc<Record>, sink: Sink) -> Self {
        Self { shared, record, sink, ended: None }
    }

    /// Pumps to the end; `finished` runs right after the record says so.
    pub(crate) async fn run(
        mut self,
        spawned: Result<Spawned>,
        timeout: Option<Duration>,
        finished: impl FnOnce(),
    ) {
        let outcome = match spawned {
            Ok(spawned) => self.follow(spawned, timeout).await,
            Err(refused) => Outcome::of_refusal(&refused, self.record.started().elapsed()),
        };
        self.record.finish(outcome.clone());
        finished();
        if let Sink::Live(listener) = &self.sink {
            // Nobody may be listening any more.
            listener.send(Output::Ended(outcome)).await.ok();
        }
    }

    async fn follow(&mut self, spawned: Spawned, timeout: Option<Duration>) -> Outcome {
        let Spawned { pid, mut exit, stdout, stderr, .. } = spawned;
        self.record.set_pid(pid);
        let expiry = Expiry::arm(&self.shared, pid, timeout);
        let mut stdout = Pipe::open(stdout);
        let mut stderr = Pipe::open(stderr);
        let (mut grace, mut budget) = (None, DRAIN_BYTES);
        while self.ended.is_none() || stdout.is_open() || stderr.is_open() {
            let reading = budget > 0;
            let event = tokio::select! {
                biased;
                bytes = stdout.read(), if reading && stdout.is_open() => Event::Stdout(bytes),
                bytes = stderr.read(), if reading && stderr.is_open() => Event::Stderr(bytes),
                status = &mut exit, if self.ended.is_none() => Event::Ended(known(status)),
                () = sleep_until(grace.unwrap_or_else(Instant::now)), if grace.is_some() => Event::GraceOver,
            };
            let output = match event {
                Event::Stdout(bytes) => Output::Stdout(bytes),
                Event::Stderr(bytes) => Output::Stderr(bytes),
                Event::Ended(status) => {
                    self.ended = Some(status);
                    grace = Some(Instant::now() + DRAIN_GRACE);
                    continue;
                }
                Event::GraceOver => break,
            };
            if self.ended.is_some() {
                budget = budget.saturating_sub(output.len());
            }
            self.deliver(output, &mut exit, &mut grace).await;
        }
        let status = self.ended.unwrap_or_default();
        self.leave_draining([stdout, stderr]);
        Outcome::of_exit(status, expiry.passed(timeout), self.record.started().elapsed())
    }

    /// Hands bytes on. A slow listener must not hide that the command has ended.
    async fn deliver(
        &mut self,
        output: Output,
        exit: &mut crate::process::Exit,
        grace: &mut Option<Instant>,
    ) {
        let (Output::Stdout(bytes) | Output::Stderr(bytes)) = &output else { return };
        if bytes.is_empty() {
            return;
        }
        match &self.sink {
            Sink::Log(log) => append(&self.shared, log, bytes.clone()).await,
            Sink::Live(listener) => {
                let permit = tokio::select! {
                    permit = listener.reserve() => permit,
                    status = &mut *exit, if self.ended.is_none() => {
                        self.ended = Some(known(status));
                        *grace = Some(Instant::now() + DRAIN_GRACE);
                        listener.reserve().await
                    }
                };
                if let Ok(permit) = permit {
                    permit.send(output);
                }
            }
        }
    }

    /// Keeps reading pipes that a grandchild still holds, so that its writes do not kill it.
    fn leave_draining(&self, pipes: [Pipe; 2]) {
        let log = match &self.sink {
            Sink::Log(log) => Some(Arc::clone(log)),
            Sink::Live(_) => None,
        };
        for mut pipe in pipes.into_iter().filter(Pipe::is_open) {
            let (log, shared) = (log.clone(), Arc::clone(&self.shared));
            tokio::spawn(async move {
                while pipe.is_open() {
                    let bytes = pipe.read().await;
                    if let Some(log) = &log {
                        append(&shared, log, bytes).await;
                    }
                }
            });
        }
    }
}

async fn append(shared: &Arc<Shared>, log: &Arc<Ring>, bytes: Bytes) {
    let log = Arc::clone(log);
    // A full disk loses log bytes; the command goes on.
    shared.start_blocking(move || log.append(&bytes).ok()).await;
}

/// The status of a child; the reaper never drops a waiter, so the fallback is never seen.
fn known(
    status: std::result::Result<ExitStatus, tokio::sync::oneshot::error::RecvError>,
) -> ExitStatus {
    status.unwrap_or_default()
}

/// One output pipe of a command, or nothing.
#[derive(Debug)]
pub(crate) struct Pipe {
    receiver: Option<Receiver>,
    buffer: BytesMut,
}

impl Pipe {
    pub(crate) fn open(fd: Option<OwnedFd>) -> Self {
        // A pipe that cannot be registered (descriptors exhausted) counts as closed.
        let receiver = fd.and_then(|fd| Receiver::from_owned_fd(fd).ok());
        Self { receiver, buffer: BytesMut::new() }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.receiver.is_some()
    }

    /// The next bytes; none at the end, after which the pipe is closed. Waits for ever if it is
    /// closed already. Safe to cancel.
    pub(crate) async fn read(&mut self) -> Bytes {
        let Some(receiver) = &mut self.receiver else { return std::future::pending().await };
        self.buffer.reserve(READ_BYTES);
        let read: io::Result<usize> = receiver.read_buf(&mut self.buffer).await;
        if read.unwrap_or(0) == 0 {
            self.receiver = None;
        }
        self.buffer.split().freeze()
    }

    /// What lies in the pipe at this moment, up to `limit` bytes, without waiting for more.
    pub(crate) fn take_now(&mut self, limit: usize) -> Bytes {
        // Asked of the kernel and not of the runtime, which may not have heard of the bytes yet.
        let fd = self.receiver.as_ref().and_then(|pipe| pipe.as_fd().try_clone_to_owned().ok());
        if let Some(fd) = fd {
            let mut taken = Vec::new();
            // Ends with "would block", or with the pipe; the bytes before that count either way.
            File::from(fd).take(limit as u64).read_to_end(&mut taken).ok();
            self.buffer.extend_from_slice(&taken);
        }
        self.buffer.split().freeze()
    }
}

/// Kills a command when its time is over.
struct Expiry {
    passed: Arc<AtomicBool>,
    timer: Option<tokio::task::JoinHandle<()>>,
}

impl Expiry {
    fn arm(shared: &Shared, pid: i32, timeout: Option<Duration>) -> Self {
        let passed = Arc::new(AtomicBool::new(false));
        let timer = timeout.map(|timeout| {
            let (passed, reaper) = (Arc::clone(&passed), shared.reaper.clone());
            tokio::spawn(async move {
                tokio::time::sleep(timeout).await;
                passed.store(reaper.signal_group(pid, libc::SIGKILL), Ordering::Release);
            })
        });
        Self { passed, timer }
    }

    fn passed(&self, timeout: Option<Duration>) -> Option<Duration> {
        timeout.filter(|_| self.passed.load(Ordering::Acquire))
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
    }
}
