//! Jobs: processes that clients start, follow, feed and signal by pid or tag.
//!
//! A job outlives whoever started it. Followers get what it prints from the moment they come;
//! its end is told for a while after it.

mod feed;

pub(crate) use feed::Feed;

use crate::{
    Error, Result,
    accounts::Login,
    command::{Output, Pump, Record, Sink},
    environment::Variables,
    guest::Shared,
    id,
    process::{Input, Launch, Spawned, Wiring},
    settings::unless_own,
    sys,
    terminal::io::{Master, TerminalInput},
};
use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{mpsc, watch};

const RUNNING_MAX: usize = 4096;
/// Ends that are remembered at once, whatever their age.
const ENDED_MAX: usize = 1024;
/// How long an end is told to whoever asks.
const ENDED_KEPT: Duration = Duration::from_secs(30);

/// A job as asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// The program as a shell would find it.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables of its own.
    pub env: Variables,
    /// Where to start it, as asked; only shown.
    pub cwd_asked: Option<String>,
    /// Where to start it.
    pub cwd: PathBuf,
    /// Who runs it.
    pub login: Login,
    /// Columns and rows of a terminal, if it gets one.
    pub terminal: Option<(u16, u16)>,
    /// Whether it gets an input; a terminal is one.
    pub takes_input: bool,
    /// A name to find it by.
    pub tag: Option<String>,
    /// When to kill it with its process group.
    pub timeout: Option<Duration>,
}

/// How a job is addressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// By process id.
    Pid(u32),
    /// By the name it was given.
    Tag(String),
}

/// One job.
#[derive(Debug)]
pub struct Job {
    pid: i32,
    number: u64,
    request: Request,
    shared: Arc<Shared>,
    feed: Arc<Feed>,
    input: Mutex<Option<Arc<TerminalInput>>>,
    ended: watch::Sender<bool>,
}

/// All jobs of the sandbox.
#[derive(Debug)]
pub struct Jobs {
    shared: Arc<Shared>,
    registry: Arc<Mutex<Registry>>,
}

#[derive(Debug, Default)]
struct Registry {
    by_pid: HashMap<i32, Arc<Job>>,
    ended: VecDeque<Arc<Job>>,
    starting: usize,
    started: u64,
}

impl Jobs {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, registry: Arc::default() }
    }

    /// Starts a job; answers it with its output from the first byte. Dropping that does not stop
    /// the job. A program that cannot be run is an error.
    pub async fn start(&self, request: Request) -> Result<(Arc<Job>, mpsc::Receiver<Output>)> {
        lock(&self.registry).reserve()?;
        let registry = Arc::clone(&self.registry);
        let shared = Arc::clone(&self.shared);
        // A task of its own: a caller that goes away must not leave a process nobody knows.
        let starting = tokio::spawn(async move {
            let job = Arc::clone(&shared);
            let spawned = shared.start_blocking(move || request.spawn(&job)).await;
            let mut jobs = lock(&registry);
            jobs.starting -= 1;
            let (request, spawned, master) = spawned?;
            let pid = spawned.pid;
            let admitted = jobs.admit(&shared, &registry, request, spawned, master);
            if admitted.is_err() {
                // Nobody could follow, feed or find it.
                shared.reaper.signal_group(pid, libc::SIGKILL);
            }
            admitted
        });
        starting.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
    }

    /// The jobs that run, oldest first.
    pub fn running(&self) -> Vec<Arc<Job>> {
        let registry = lock(&self.registry);
        let mut jobs: Vec<Arc<Job>> =
            registry.by_pid.values().filter(|job| job.is_running()).cloned().collect();
        jobs.sort_by_key(|job| job.number);
        jobs
    }

    /// A job that runs or has ended lately.
    pub fn find(&self, selector: &Selector) -> Result<Arc<Job>> {
        let registry = lock(&self.registry);
        let found = match selector {
            Selector::Pid(pid) => {
                i32::try_from(*pid).ok().and_then(|pid| registry.by_pid.get(&pid))
            }
            Selector::Tag(tag) => {
                let tagged = registry.by_pid.values();
                let tagged = tagged.filter(|job| job.request.tag.as_ref() == Some(tag));
                tagged.max_by_key(|job| (job.is_running(), job.number))
            }
        };
        found.cloned().ok_or_else(|| unknown(selector))
    }

    /// A job that runs.
    pub fn find_running(&self, selector: &Selector) -> Result<Arc<Job>> {
        let job = self.find(selector)?;
        if job.is_running() { Ok(job) } else { Err(unknown(selector)) }
    }
}

fn unknown(selector: &Selector) -> Error {
    let id = match selector {
        Selector::Pid(pid) => format!("pid {pid}"),
        Selector::Tag(tag) => format!("tag {tag:?}"),
    };
    Error::Unknown { kind: "process", id }
}

impl Request {
    /// Reads account and environment files and starts the process: for a blocking thread.
    fn spawn(self, shared: &Shared) -> Result<(Self, Spawned, Option<OwnedFd>)> {
        let env = shared.settings.current().login(&self.login, &self.env);
        let mut argv = vec![self.program.clone()];
        argv.extend(self.arguments.iter().cloned());
        let (master, wiring) = match self.terminal {
            None if self.takes_input => (None, Wiring::Split(Input::Pipe)),
            None => (None, Wiring::Split(Input::Null)),
            Some((cols, rows)) => {
                let opened = sys::open_terminal().and_then(|(master, slave)| {
                    sys::resize_terminal(&master, cols, rows).map(|()| (master, slave))
                });
                let (master, slave) = opened.map_err(Error::system("open a terminal"))?;
                (Some(master), Wiring::Terminal(slave))
            }
        };
        let identity = unless_own(self.login.identity.clone());
        let launch = Launch { argv, env, cwd: self.cwd.clone(), identity, wiring };
        Ok((self, launch.spawn(&shared.reaper)?, master))
    }
}

impl Registry {
    fn reserve(&mut self) -> Result<()> {
        let running = self.by_pid.len() - self.ended.len();
        if running + self.starting >= RUNNING_MAX {
            return Err(Error::Full { what: "running processes", limit: RUNNING_MAX });
        }
        self.starting += 1;
        Ok(())
    }

    fn admit(
        &mut self,
        shared: &Arc<Shared>,
        registry: &Arc<Mutex<Registry>>,
        request: Request,
        mut spawned: Spawned,
        master: Option<OwnedFd>,
    ) -> Result<(Arc<Job>, mpsc::Receiver<Output>)> {
        let master = master.map(|fd| Master::new(fd).map(Arc::new)).transpose();
        let master = master.map_err(Error::system("watch the terminal"))?;
        let input = match &master {
            Some(master) => Some(TerminalInput::Master(Arc::clone(master))),
            None => spawned
                .stdin
                .take()
                .map(|fd| TerminalInput::pipe(Some(fd)))
                .transpose()
                .map_err(Error::system("open the input"))?,
        };
        self.started += 1;
        let job = Arc::new(Job {
            pid: spawned.pid,
            number: self.started,
            shared: Arc::clone(shared),
            feed: Arc::default(),
            input: Mutex::new(input.map(Arc::new)),
            ended: watch::Sender::new(false),
            request,
        });
        let output = job.feed.follow()?;
        // The kernel gives a number again only after the former owner was reaped.
        self.forget(job.pid);
        self.by_pid.insert(job.pid, Arc::clone(&job));
        tokio::spawn(attend(Arc::clone(&job), spawned, master, Arc::clone(registry)));
        Ok((job, output))
    }

    fn forget(&mut self, pid: i32) {
        if self.by_pid.remove(&pid).is_some() {
            self.ended.retain(|job| job.pid != pid);
        }
    }

    fn remember_ended(&mut self, job: &Arc<Job>) {
        let is_known = self.by_pid.get(&job.pid).is_some_and(|known| known.number == job.number);
        if is_known {
            self.ended.push_back(Arc::clone(job));
            if self.ended.len() > ENDED_MAX
                && let Some(oldest) = self.ended.front().map(|job| job.pid)
            {
                self.forget(oldest);
            }
        }
    }
}

/// Moves a job's output until its end, and forgets the job some time later.
async fn attend(
    job: Arc<Job>,
    spawned: Spawned,
    master: Option<Arc<Master>>,
    registry: Arc<Mutex<Registry>>,
) {
    let record = Arc::new(Record::new(id::fresh(), String::new()));
    let pump = Pump::new(Arc::clone(&job.shared), record, Sink::Feed(Arc::clone(&job.feed)));
    let ended = || {
        job.input().take();
        job.ended.send_replace(true);
        lock(&registry).remember_ended(&job);
    };
    pump.with_terminal(master).run(Ok(spawned), job.request.timeout, ended).await;
    tokio::time::sleep(ENDED_KEPT).await;
    let mut jobs = lock(&registry);
    if jobs.by_pid.get(&job.pid).is_some_and(|known| known.number == job.number) {
        jobs.forget(job.pid);
    }
}

impl Job {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// As it was asked for.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        !*self.ended.borrow()
    }

    /// What it prints from now on and its end; only the end when it has ended. A follower that
    /// takes nothing for too long sees the channel end without one.
    pub fn follow(&self) -> Result<mpsc::Receiver<Output>> {
        self.feed.follow()
    }

    fn input(&self) -> MutexGuard<'_, Option<Arc<TerminalInput>>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes to its input or terminal; waits while it does not read, and no longer than it runs.
    pub async fn write(&self, bytes: &[u8]) -> Result<()> {
        let closed =
            || io::Error::new(io::ErrorKind::BrokenPipe, "it has no input, or a closed one");
        let input = self.input().clone().ok_or_else(closed);
        let failed = "write to the process's input";
        let input = input.map_err(Error::system(failed))?;
        let mut ended = self.ended.subscribe();
        tokio::select! {
            written = input.write(bytes) => written.map_err(Error::system(failed)),
            _ = ended.wait_for(|ended| *ended) => Err(Error::system(failed)(closed())),
        }
    }

    /// Ends its input, after what is being written to it.
    pub fn close_input(&self) {
        self.input().take();
    }

    /// Sets the size of its terminal in characters.
    pub fn resize(&self, cols: u16, rows: u16) -> Result<()> {
        match self.input().as_deref() {
            Some(input) => input.resize(cols, rows).map_err(Error::system("resize the terminal")),
            None => Ok(()),
        }
    }

    /// Sends a signal to the process, and to it alone.
    pub fn signal(&self, signal: i32) -> Result<()> {
        let sent = self.shared.reaper.signal_child(self.pid, signal);
        sent.then_some(()).ok_or_else(|| unknown(&Selector::Pid(self.pid())))
    }
}

fn lock(registry: &Mutex<Registry>) -> MutexGuard<'_, Registry> {
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}
