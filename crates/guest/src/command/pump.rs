use super::{Outcome, Record};
use crate::{Result, guest::Shared, job::Feed, process::Spawned, ring::Ring, terminal::io::Master};
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
const TERMINAL_READ_BYTES: usize = 16 * 1024;
/// How long a pipe may stay open after the command ended, because a grandchild holds it.
const DRAIN_GRACE: Duration = Duration::from_millis(100);
/// What two pipes of the largest usual size can hold when the command ends.
const DRAIN_BYTES: usize = 2 << 20;

/// What a command delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// To everybody who follows, as long as they keep up.
    Feed(Arc<Feed>),
    /// To a log.
    Log(Arc<Ring>),
}

/// Moves a command's output to its sink until the command has ended and its pipes are drained.
#[derive(Debug)]
pub(crate) struct Pump {
    shared: Arc<Shared>,
    record: Arc<Record>,
    sink: Sink,
    /// What stands for both outputs of a process on a terminal.
    terminal: Option<Arc<Master>>,
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
        Self { shared, record, sink, terminal: None, ended: None }
    }

    /// Reads a terminal instead of pipes.
    pub(crate) fn with_terminal(self, terminal: Option<Arc<Master>>) -> Self {
        Self { terminal, ..self }
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
        match &self.sink {
            // Nobody may be listening any more.
            Sink::Live(listener) => drop(listener.send(Output::Ended(outcome)).await),
            Sink::Feed(feed) => feed.finish(outcome).await,
            Sink::Log(_) => {}
        }
    }

    async fn follow(&mut self, spawned: Spawned, timeout: Option<Duration>) -> Outcome {
        let Spawned { pid, mut exit, stdout, stderr, .. } = spawned;
        self.record.set_pid(pid);
        let expiry = Expiry::arm(&self.shared, pid, timeout);
        let mut stdout = match self.terminal.take() {
            Some(terminal) => Pipe::of_terminal(terminal),
            None => Pipe::open(stdout),
        };
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
            Sink::Feed(feed) => feed.deliver(output).await,
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
            Sink::Live(_) | Sink::Feed(_) => None,
        };
        // A terminal is closed instead: whoever is left on it learns that its user has gone.
        let is_held = |pipe: &Pipe| matches!(pipe.source, Some(Source::Pipe(_)));
        for mut pipe in pipes.into_iter().filter(is_held) {
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

/// One output of a command, or nothing.
#[derive(Debug)]
pub(crate) struct Pipe {
    source: Option<Source>,
    buffer: BytesMut,
}

#[derive(Debug)]
enum Source {
    Pipe(Receiver),
    Terminal(Arc<Master>),
}

impl Pipe {
    pub(crate) fn open(fd: Option<OwnedFd>) -> Self {
        // A pipe that cannot be registered (descriptors exhausted) counts as closed.
        let receiver = fd.and_then(|fd| Receiver::from_owned_fd(fd).ok());
        Self { source: receiver.map(Source::Pipe), buffer: BytesMut::new() }
    }

    fn of_terminal(master: Arc<Master>) -> Self {
        Self { source: Some(Source::Terminal(master)), buffer: BytesMut::new() }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.source.is_some()
    }

    /// The next bytes; none at the end, after which the pipe is closed. Waits for ever if it is
    /// closed already. Safe to cancel.
    pub(crate) async fn read(&mut self) -> Bytes {
        let read: io::Result<usize> = match &mut self.source {
            None => return std::future::pending().await,
            Some(Source::Pipe(receiver)) => {
                self.buffer.reserve(READ_BYTES);
                receiver.read_buf(&mut self.buffer).await
            }
            Some(Source::Terminal(master)) => {
                // Nothing of an earlier read is ever left over here.
                self.buffer.clear();
                self.buffer.resize(TERMINAL_READ_BYTES, 0);
                let read = master.read(&mut self.buffer).await;
                self.buffer.truncate(read.as_ref().map_or(0, |read| *read));
                read
            }
        };
        // The kernel answers EIO when the last process has closed its side of a terminal.
        if read.unwrap_or(0) == 0 {
            self.source = None;
        }
        self.buffer.split().freeze()
    }

    /// What lies in the pipe at this moment, up to `limit` bytes, without waiting for more.
    pub(crate) fn take_now(&mut self, limit: usize) -> Bytes {
        // Asked of the kernel and not of the runtime, which may not have heard of the bytes yet.
        let fd = match &self.source {
            Some(Source::Pipe(pipe)) => pipe.as_fd().try_clone_to_owned().ok(),
            Some(Source::Terminal(_)) | None => None,
        };
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
