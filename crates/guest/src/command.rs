//! Commands: started, watched, interrupted, and remembered for a while.

mod outcome;
mod pump;
mod record;

pub use outcome::Outcome;
pub use pump::Output;
pub use record::Status;

pub(crate) use pump::{Pipe, Pump, Sink};
pub(crate) use record::Record;

use crate::{
    Error, Result,
    accounts::Accounts,
    environment::Variables,
    guest::Shared,
    id,
    process::{Input, Launch, Spawned, Wiring},
    ring::Ring,
    settings::unless_own,
    sys,
};
use std::{
    collections::{HashMap, VecDeque},
    fs::{self, File, OpenOptions},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::mpsc;

const RUNNING_MAX: usize = 4096;
const FINISHED_KEPT: usize = 1000;
const LOGS_KEPT: usize = 128;
const LOG_BYTES: u64 = 16 << 20;
/// Chunks that wait for a slow reader before the command itself has to wait.
const OUTPUT_QUEUE: usize = 8;
/// How long an interrupted command may tidy up.
const INTERRUPT_GRACE: Duration = Duration::from_secs(3);

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Text for the shell.
    Shell(String),
    /// A program and its arguments, without a shell.
    Argv(Vec<String>),
}

/// A command as asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// What to run.
    pub line: Line,
    /// Where to start it; the sandbox's directory when absent.
    pub cwd: Option<String>,
    /// Variables of its own.
    pub env: Variables,
    /// When to kill it.
    pub timeout: Option<Duration>,
    /// Which user to run as, with an optional group; the sandbox's user when absent.
    pub user: Option<(u32, Option<u32>)>,
}

/// A command that has been started with its output delivered live.
#[derive(Debug)]
pub struct Running {
    /// Its id.
    pub id: String,
    /// What it prints, ending with [`Output::Ended`]. Dropping this does not stop the command.
    pub output: mpsc::Receiver<Output>,
}

/// All commands of the sandbox.
#[derive(Debug)]
pub struct Commands {
    shared: Arc<Shared>,
    registry: Arc<Mutex<Registry>>,
}

#[derive(Debug, Default)]
struct Registry {
    by_id: HashMap<String, Arc<Record>>,
    finished: VecDeque<String>,
    logged: VecDeque<String>,
}

impl Commands {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, registry: Arc::default() }
    }

    /// Starts a command and delivers its output. A program that cannot be executed is a command
    /// that ended with 126 or 127, as in a shell; a bad request is an error.
    pub async fn run(&self, request: Request) -> Result<Running> {
        let (sender, output) = mpsc::channel(OUTPUT_QUEUE);
        let id =
            self.start(request, Wiring::Split(Input::Null), |_| Ok(Sink::Live(sender))).await?;
        Ok(Running { id, output })
    }

    /// Starts a command whose output goes to a bounded log; answers its id.
    pub async fn run_background(&self, request: Request) -> Result<String> {
        let registry = Arc::clone(&self.registry);
        self.start(request, Wiring::Merged, move |record| {
            let log = Arc::new(new_log()?);
            record.attach_log(Arc::clone(&log));
            lock(&registry).remember_log(record.id());
            Ok(Sink::Log(log))
        })
        .await
    }

    async fn start(
        &self,
        request: Request,
        wiring: Wiring,
        sink: impl FnOnce(&Record) -> Result<Sink> + Send + 'static,
    ) -> Result<String> {
        let record = Arc::new(Record::new(id::fresh(), request.line.text()));
        self.register(&record)?;
        let (shared, timeout) = (Arc::clone(&self.shared), request.timeout);
        let reaper = self.shared.reaper.clone();
        let (target, job) = (Arc::clone(&record), Arc::clone(&self.shared));
        let started = shared
            .start_blocking(move || -> Result<(Sink, Result<Spawned>)> {
                let launch = request.prepare(&job, wiring)?;
                Ok((sink(&target)?, launch.spawn(&reaper)))
            })
            .await;
        match started {
            Err(refused) | Ok((_, Err(refused @ Error::Invalid { .. }))) => {
                lock(&self.registry).by_id.remove(record.id());
                Err(refused)
            }
            Ok((sink, spawned)) => {
                let id = record.id().to_owned();
                self.attend(record, sink, spawned, timeout);
                Ok(id)
            }
        }
    }

    fn register(&self, record: &Arc<Record>) -> Result<()> {
        let mut registry = lock(&self.registry);
        if registry.by_id.len() - registry.finished.len() >= RUNNING_MAX {
            return Err(Error::Full { what: "running commands", limit: RUNNING_MAX });
        }
        registry.by_id.insert(record.id().to_owned(), Arc::clone(record));
        Ok(())
    }

    fn attend(
        &self,
        record: Arc<Record>,
        sink: Sink,
        spawned: Result<Spawned>,
        timeout: Option<Duration>,
    ) {
        let (registry, id) = (Arc::clone(&self.registry), record.id().to_owned());
        let pump = Pump::new(Arc::clone(&self.shared), record, sink);
        tokio::spawn(async move {
            pump.run(spawned, timeout, move || lock(&registry).remember_finished(id)).await;
        });
    }

    /// Asks a running command to stop, and kills its process group three seconds later.
    pub fn interrupt(&self, id: &str) -> Result<()> {
        let record = self.find(id)?;
        let not_running = || Error::NotRunning { kind: "command", id: id.to_owned() };
        let pid = record.running_pid().ok_or_else(not_running)?;
        interrupt_group(&self.shared, pid).then_some(()).ok_or_else(not_running)
    }

    /// How a command is doing or how it ended.
    pub fn status(&self, id: &str) -> Result<Status> {
        Ok(self.find(id)?.status())
    }

    /// The output of a background command from byte `cursor` on, and the next cursor.
    pub async fn log(&self, id: &str, cursor: u64) -> Result<(Vec<u8>, u64)> {
        let log = self.find(id)?.log().ok_or_else(|| {
            Error::invalid(
                "id",
                format!("command {id} has no log; only background commands do, for a while"),
            )
        })?;
        self.shared
            .file_blocking(move || {
                log.since(cursor).map_err(Error::system("read the command's log"))
            })
            .await
    }

    fn find(&self, id: &str) -> Result<Arc<Record>> {
        let found = lock(&self.registry).by_id.get(id).cloned();
        found.ok_or_else(|| Error::Unknown { kind: "command", id: id.to_owned() })
    }
}

/// Terminates a process group, with force after the grace; false when its leader has ended.
pub(crate) fn interrupt_group(shared: &Arc<Shared>, pid: i32) -> bool {
    if !shared.reaper.signal_group(pid, libc::SIGTERM) {
        return false;
    }
    let reaper = shared.reaper.clone();
    tokio::spawn(async move {
        tokio::time::sleep(INTERRUPT_GRACE).await;
        if !reaper.signal_group(pid, libc::SIGKILL) {
            reaper.kill_remains(pid);
        }
    });
    true
}

impl Line {
    fn text(&self) -> String {
        match self {
            Self::Shell(text) => text.clone(),
            Self::Argv(words) => words.join(" "),
        }
    }
}

impl Request {
    /// Reads account files and the environment file: for a blocking thread.
    fn prepare(self, shared: &Shared, wiring: Wiring) -> Result<Launch> {
        let environment = shared.settings.current();
        let identity = match self.user {
            Some((uid, gid)) => unless_own(Accounts::load().identity(uid, gid)),
            None => environment.user().cloned(),
        };
        let env = environment.compose(identity.as_ref(), &self.env);
        let cwd = match &self.cwd {
            Some(cwd) if !cwd.is_empty() => environment.expand(cwd, identity.as_ref()),
            _ => environment.cwd().to_owned(),
        };
        let argv = match self.line {
            Line::Argv(words) => words,
            Line::Shell(text) => Launch::shell_argv(&env, &text),
        };
        Ok(Launch { argv, env, cwd, identity, wiring })
    }
}

impl Registry {
    fn remember_finished(&mut self, id: String) {
        self.finished.push_back(id);
        if self.finished.len() > FINISHED_KEPT
            && let Some(oldest) = self.finished.pop_front()
        {
            self.by_id.remove(&oldest);
        }
    }

    fn remember_log(&mut self, id: &str) {
        self.logged.push_back(id.to_owned());
        if self.logged.len() > LOGS_KEPT
            && let Some(oldest) = self.logged.pop_front()
            && let Some(record) = self.by_id.get(&oldest)
        {
            record.drop_log();
        }
    }
}

fn lock(registry: &Mutex<Registry>) -> MutexGuard<'_, Registry> {
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A log in a nameless temporary file, or in memory where the sandbox has no writable place.
fn new_log() -> Result<Ring> {
    let path = std::env::temp_dir().join(format!(".atoll-log-{}", id::fresh()));
    let created = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file: std::io::Result<File> = match created {
        Ok(file) => fs::remove_file(&path).map(|()| file),
        Err(_) => sys::memory_file(),
    };
    file.and_then(|file| Ring::create(file, LOG_BYTES)).map_err(Error::system("make a log file"))
}
