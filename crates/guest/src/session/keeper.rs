//! The one who owns a session's shell and gives it one text at a time.

use super::{
    home::Home,
    shell::{Current, Shell},
};
use crate::{
    Error, Result,
    command::{Outcome, Output},
    guest::Shared,
};
use bytes::{Bytes, BytesMut};
use std::{
    path::PathBuf,
    process::ExitStatus,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep_until, timeout},
};

/// Bytes that jobs in the background may print between two runs; the newest are kept.
const BACKLOG_BYTES_MAX: usize = 64 * 1024;
/// What a pipe of the largest usual size can hold when a run ends.
const DRAIN_BYTES_MAX: usize = 1 << 20;
/// How long a pipe may stay open after its shell ended, because a grandchild holds it.
const DRAIN_GRACE: Duration = Duration::from_millis(100);
/// How long a run that is asked to end may tidy up, and so may a shell.
pub(super) const END_GRACE: Duration = Duration::from_secs(3);

/// A text to be run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) text: String,
    pub(super) cwd: Option<PathBuf>,
    pub(super) timeout: Option<Duration>,
    /// Answered when its turn has come, with the output to follow.
    pub(super) begun: oneshot::Sender<Result<mpsc::Receiver<Output>>>,
}

/// What a session's keeper and its callers share.
#[derive(Debug, Default)]
pub(super) struct Desk {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Current>,
    closed: bool,
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the run at work; false when the session has been closed.
    fn occupy(&self, current: Current) -> bool {
        let mut state = self.state();
        state.current = Some(current);
        !state.closed
    }

    fn vacate(&self) {
        self.state().current = None;
    }

    fn is_closed(&self) -> bool {
        self.state().closed
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
    }

    /// Ends the run at work, with force after the grace; false when there is none.
    pub(super) async fn interrupt(self: &Arc<Self>, shared: &Arc<Shared>) -> bool {
        let (current, reached) = {
            let state = self.state();
            let Some(current) = state.current else { return false };
            // The shell first, else it would go on with the next line of the text; and now, else
            // the next run could be at work already.
            (current, shared.reaper.signal_child(current.pid, libc::SIGTERM))
        };
        current.terminate_started(shared).await;
        let (desk, shared) = (Arc::clone(self), Arc::clone(shared));
        tokio::spawn(async move {
            tokio::time::sleep(END_GRACE).await;
            let still_at_work = desk.state().current == Some(current);
            if still_at_work {
                current.kill(&shared).await;
            }
        });
        reached
    }
}

/// Keeps one session until it is closed.
#[derive(Debug)]
pub(super) struct Keeper {
    shared: Arc<Shared>,
    desk: Arc<Desk>,
    home: Arc<Home>,
    start: PathBuf,
    shell: Option<Shell>,
    backlog: BytesMut,
    runs: u64,
}

enum Event {
    Printed(Bytes),
    Sent,
    Reported(i32),
    Exited(ExitStatus),
    Expired(Duration),
}

enum End {
    /// The shell lives on.
    Reported(i32),
    /// The shell ended, perhaps because the run's time was over.
    Exited(ExitStatus, Option<Duration>),
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>, desk: Arc<Desk>, home: Home, start: PathBuf) -> Self {
        let (home, backlog) = (Arc::new(home), BytesMut::new());
        Self { shared, desk, home, start, shell: None, backlog, runs: 0 }
    }

    /// Performs jobs in order until nobody can send any more, then ends the shell.
    pub(super) async fn keep(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(job) = self.next_job(&mut jobs).await {
            if self.desk.is_closed() {
                break;
            }
            // One who has stopped waiting for a turn wants no run.
            if !job.begun.is_closed() {
                self.perform(job).await;
            }
        }
        self.end_shell().await;
        let home = Arc::clone(&self.home);
        let remove = move || {
            home.remove();
            Ok(())
        };
        // A run may have filled the directory, so this must not hold up anybody else.
        self.shared.as_user(remove).await.ok();
    }

    /// Waits for work; meanwhile jobs in the background must be able to print, and to end.
    async fn next_job(&mut self, jobs: &mut mpsc::Receiver<Job>) -> Option<Job> {
        loop {
            let Some(shell) = &mut self.shell else { return jobs.recv().await };
            tokio::select! {
                biased;
                job = jobs.recv() => return job,
                bytes = shell.output.read() => {
                    self.backlog.extend_from_slice(&bytes);
                    let excess = self.backlog.len().saturating_sub(BACKLOG_BYTES_MAX);
                    drop(self.backlog.split_to(excess));
                }
                _ = &mut shell.exit => self.drop_shell(),
            }
        }
    }

    async fn perform(&mut self, job: Job) {
        let Job { text, cwd, timeout, begun } = job;
        let (started, enter) = (Instant::now(), cwd.is_some());
        if let Err(error) = self.prepare(text, cwd).await {
            // Nobody may be waiting any more.
            begun.send(Err(error)).ok();
            return;
        }
        let shell = self.shell.as_mut().expect("it has just been made sure of");
        self.runs += 1;
        let current = Current::of(shell, self.runs);
        if !self.desk.occupy(current) {
            return;
        }
        let (listener, output) = mpsc::channel(super::OUTPUT_QUEUE);
        begun.send(Ok(output)).ok();
        deliver(&listener, self.backlog.split().freeze()).await;
        let token = shell.begin(enter).await;
        let limit = timeout.and_then(|timeout| Some((timeout, started.checked_add(timeout)?)));
        let (end, mut rest) = self.follow(&token, &listener, current, limit).await;
        let outcome = match end {
            End::Reported(code) => Outcome::of_code(code, started.elapsed()),
            End::Exited(status, expired) => {
                self.drain_ended(&mut rest).await;
                Outcome::of_exit(status, expired, started.elapsed())
            }
        };
        // A slow reader does not keep the next run waiting.
        tokio::spawn(async move {
            deliver(&listener, rest.freeze()).await;
            listener.send(Output::Ended(outcome)).await.ok();
        });
    }

    /// Lays the text out and makes sure of a shell.
    async fn prepare(&mut self, text: String, cwd: Option<PathBuf>) -> Result<()> {
        let home = Arc::clone(&self.home);
        let fresh = self.shell.is_none();
        let laid = move || {
            home.lay_out(&text, cwd.as_deref())?;
            Ok(if fresh { home.newest_state() } else { None })
        };
        let state = self.shared.as_user(laid).await?;
        if fresh {
            let (shared, home) = (Arc::clone(&self.shared), Arc::clone(&self.home));
            let start = self.start.clone();
            let spawn = move || Shell::spawn(&shared, home.path(), start, state);
            let spawned = self.shared.start_blocking(spawn).await?;
            let shell = Shell::adopt(spawned).map_err(Error::system("talk to the shell"))?;
            self.shell = Some(shell);
        }
        Ok(())
    }

    /// Moves output until the shell reports the end of the run, or ends itself; answers also what
    /// has not been handed on.
    async fn follow(
        &mut self,
        token: &str,
        listener: &mpsc::Sender<Output>,
        current: Current,
        limit: Option<(Duration, Instant)>,
    ) -> (End, BytesMut) {
        let shell = self.shell.as_mut().expect("a run has a shell");
        let (mut pending, mut expired) = (Bytes::new(), None);
        let end = loop {
            let timer = limit.filter(|_| expired.is_none());
            // Whether a slow listener takes the output has no say in how the run ends.
            let event = tokio::select! {
                biased;
                code = shell.reports.code_of(token), if expired.is_none() => Event::Reported(code),
                status = &mut shell.exit => Event::Exited(status.unwrap_or_default()),
                limit = passed(timer) => Event::Expired(limit),
                permit = listener.reserve(), if !pending.is_empty() => {
                    let bytes = std::mem::take(&mut pending);
                    // Without a listener the output is dropped and the run goes on.
                    permit.map(|permit| permit.send(Output::Stdout(bytes))).ok();
                    Event::Sent
                }
                bytes = shell.output.read(), if pending.is_empty() => Event::Printed(bytes),
            };
            match event {
                Event::Printed(bytes) => pending = bytes,
                Event::Sent => {}
                Event::Expired(limit) => {
                    expired = Some(limit);
                    current.kill(&self.shared).await;
                }
                Event::Reported(code) => break End::Reported(code),
                Event::Exited(status) => break End::Exited(status, expired),
            }
        };
        self.desk.vacate();
        let mut rest = BytesMut::from(&pending[..]);
        rest.extend_from_slice(&shell.output.take_now(DRAIN_BYTES_MAX));
        (end, rest)
    }

    /// Reads what is left after the shell has ended, and lets go of it.
    async fn drain_ended(&mut self, rest: &mut BytesMut) {
        let Some(shell) = &mut self.shell else { return };
        let drained = async {
            while shell.output.is_open() && rest.len() < DRAIN_BYTES_MAX {
                rest.extend_from_slice(&shell.output.read().await);
            }
        };
        timeout(DRAIN_GRACE, drained).await.ok();
        self.drop_shell();
    }

    /// Lets go of a shell that has ended. Jobs it left behind may go on printing, to nobody.
    fn drop_shell(&mut self) {
        let Some(mut shell) = self.shell.take() else { return };
        tokio::spawn(async move {
            while shell.output.is_open() {
                shell.output.read().await;
            }
        });
    }

    async fn end_shell(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            shell.hang_up(&self.shared);
            if timeout(END_GRACE, &mut shell.exit).await.is_err() {
                self.shared.reaper.signal_child(shell.pid, libc::SIGKILL);
                (&mut shell.exit).await.ok();
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Only in a guest that ends with its sessions open: the shell must not save its state
        // while the directory is being removed.
        if let Some(shell) = &self.shell {
            self.shared.reaper.signal_child(shell.pid, libc::SIGKILL);
        }
    }
}

/// Waits until a time limit is over and answers it; for ever when there is none.
async fn passed(limit: Option<(Duration, Instant)>) -> Duration {
    match limit {
        Some((limit, deadline)) => {
            sleep_until(deadline.into()).await;
            limit
        }
        None => std::future::pending().await,
    }
}

async fn deliver(listener: &mpsc::Sender<Output>, bytes: Bytes) {
    if !bytes.is_empty() {
        // Nobody may be listening any more.
        listener.send(Output::Stdout(bytes)).await.ok();
    }
}
