//! Shell sessions: each is one long-lived shell that runs texts one after another.
//!
//! Everything a shell knows persists between runs: variables, functions, aliases, options,
//! directory, jobs. Both outputs arrive as stdout in the order written; what a job in the
//! background prints between two runs is delivered, within a bound, at the start of the next.
//!
//! A run that ends the shell (`exit 7`, `exec`, a failure under `set -e`, a timeout or an
//! interrupt) ends with the shell's own exit code, and the next run starts a new shell with the
//! state last saved: at the exit itself, or before the run if the shell was killed. The state holds
//! everything but jobs and open files; a plain `sh` leaves out functions, aliases and traps too.
//! A timeout ends what its run has started and spares the jobs of earlier runs.

mod home;
mod keeper;
mod shell;

use crate::{Error, Result, command::Output, guest::Shared, id};
use home::Home;
use keeper::{Desk, Job, Keeper};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

const SESSIONS_MAX: usize = 256;
/// Runs of one session that may wait in line; more wait to join it.
const RUNS_WAITING: usize = 64;
/// Chunks that wait for a slow reader before the run itself has to wait.
const OUTPUT_QUEUE: usize = 8;

/// All shell sessions of the sandbox.
#[derive(Debug)]
pub struct Sessions {
    shared: Arc<Shared>,
    by_id: Mutex<HashMap<String, Session>>,
}

#[derive(Debug)]
struct Session {
    jobs: mpsc::Sender<Job>,
    desk: Arc<Desk>,
    keeper: JoinHandle<()>,
}

impl Sessions {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, by_id: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session that starts in `cwd`; answers its id. Its shell starts with the first run.
    pub async fn open(&self, cwd: Option<&str>) -> Result<String> {
        let full = || Error::Full { what: "shell sessions", limit: SESSIONS_MAX };
        if self.lock().len() >= SESSIONS_MAX {
            return Err(full());
        }
        let start = match self.directory(cwd) {
            Some(start) => self.checked(start).await?,
            None => self.shared.settings.current().cwd().to_owned(),
        };
        let id = id::fresh();
        let name = id.clone();
        let home = self.shared.as_user(move || Home::create(&name)).await?;
        let desk = Arc::new(Desk::default());
        let keeper = Keeper::new(Arc::clone(&self.shared), Arc::clone(&desk), home, start);
        let mut sessions = self.lock();
        // Asked again: others may have opened some meanwhile.
        if sessions.len() >= SESSIONS_MAX {
            return Err(full());
        }
        let (jobs, queue) = mpsc::channel(RUNS_WAITING);
        let keeper = tokio::spawn(keeper.keep(queue));
        sessions.insert(id.clone(), Session { jobs, desk, keeper });
        Ok(id)
    }

    /// Runs text in a session, after the runs that were asked for before it; answers when its turn
    /// has come. A directory named here stays the session's directory.
    pub async fn run(
        &self,
        id: &str,
        text: String,
        cwd: Option<&str>,
        timeout: Option<Duration>,
    ) -> Result<mpsc::Receiver<Output>> {
        let unknown = || Error::Unknown { kind: "session", id: id.to_owned() };
        let jobs = self.lock().get(id).map(|session| session.jobs.clone()).ok_or_else(unknown)?;
        if text.contains('\0') {
            return Err(Error::invalid("command", "contains a NUL byte; remove it"));
        }
        let cwd = match self.directory(cwd) {
            Some(cwd) => Some(self.checked(cwd).await?),
            None => None,
        };
        let (begun, turn) = oneshot::channel();
        let sent = jobs.send(Job { text, cwd, timeout, begun }).await;
        // A session that is closed while this waits drops what is still in line.
        drop(jobs);
        sent.map_err(|_| unknown())?;
        turn.await.map_err(|_| unknown())?
    }

    /// Interrupts the run at work in a session: SIGTERM, and SIGKILL three seconds later.
    pub async fn interrupt(&self, id: &str) -> Result<()> {
        let desk = self.lock().get(id).map(|session| Arc::clone(&session.desk));
        let desk = desk.ok_or_else(|| Error::Unknown { kind: "session", id: id.to_owned() })?;
        let ended = desk.interrupt(&self.shared).await;
        let not_running = || Error::NotRunning { kind: "session", id: id.to_owned() };
        ended.then_some(()).ok_or_else(not_running)
    }

    /// Closes a session: the run at work is interrupted, and the shell and its jobs get SIGHUP, as
    /// when a terminal is closed. Answers when the shell has ended.
    pub async fn close(&self, id: &str) -> Result<()> {
        let session = self.lock().remove(id);
        let Session { jobs, desk, keeper } =
            session.ok_or_else(|| Error::Unknown { kind: "session", id: id.to_owned() })?;
        desk.close();
        drop(jobs);
        let shared = Arc::clone(&self.shared);
        // A task of its own: a caller that goes away must not leave the session half closed.
        let closing = tokio::spawn(async move {
            desk.interrupt(&shared).await;
            keeper.await
        });
        // It fails only with a panic, which has been reported where it happened.
        closing.await.ok();
        Ok(())
    }

    fn directory(&self, cwd: Option<&str>) -> Option<PathBuf> {
        let cwd = cwd.filter(|cwd| !cwd.is_empty())?;
        let environment = self.shared.settings.current();
        Some(environment.expand(cwd, environment.user()))
    }

    async fn checked(&self, directory: PathBuf) -> Result<PathBuf> {
        let check = move || match directory.is_dir() {
            true => Ok(directory),
            false => {
                let problem = format!("{}: name an existing directory", directory.display());
                Err(Error::invalid("cwd", problem))
            }
        };
        self.shared.start_blocking(check).await
    }
}
