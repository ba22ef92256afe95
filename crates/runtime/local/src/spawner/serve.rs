//! The spawner's loop: requests in, sandboxes out, ends written down.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use super::identity::Identities;
use super::launch::{self, Held, Starting};
use super::oci::{self, Stage};
use crate::files::{read_json, write_json};
use crate::net::{Cable, Router};
use crate::protocol::{
    Answer, Ended, GENERATION, Launch, Launched, Launcher, Request, SpawnerConfig, files,
};
use crate::sys::process;
use crate::sys::socket::Poller;

/// Token of the listening socket.
const LISTENER: u64 = 0;
/// Longest request: the environment of a sandbox is in it.
const REQUEST_BYTES_MAX: usize = 8 << 20;
/// Quiet time after which the next namespaces are made ready.
const IDLE_MS: i32 = 20;
/// Ends remembered for starts that are not finished.
const EARLY_ENDS_MAX: usize = 1024;
/// Orphans are collected at least this often.
const TICK_MS: i32 = 2000;

/// What a token stands for.
enum Watched {
    /// A client that has not finished its line.
    Client(UnixStream, Vec<u8>),
    /// A server that stays.
    Attached(UnixStream),
    /// A sandbox on its way.
    Starting(Box<Pending>),
    /// The first process of a sandbox.
    Process(i32),
}

struct Pending {
    client: UnixStream,
    launch: Launch,
    starting: Starting,
}

/// A sandbox that runs.
struct Running {
    dir: PathBuf,
    held: Held,
    launcher: Launcher,
    pidfd: OwnedFd,
}

/// The loop and all it owns.
pub(super) struct Spawner {
    config: SpawnerConfig,
    poller: Poller,
    listener: UnixListener,
    router: Router,
    identities: Identities,
    ready: Vec<Cable>,
    /// Cable numbers of sandboxes that an earlier spawner started.
    foreign_cables: BTreeSet<u32>,
    watched: HashMap<u64, Watched>,
    running: HashMap<i32, Running>,
    next_token: u64,
    ever_attached: bool,
    /// Made for the first OCI launch.
    stage: Option<Stage>,
    /// Ends of processes that no start has claimed yet.
    early_ends: HashMap<i32, i32>,
    /// Sandboxes that are to end, and who waits for it.
    settling: Vec<(String, UnixStream)>,
}

impl Spawner {
    pub(super) fn new(config: SpawnerConfig) -> io::Result<Self> {
        let router = Router::start(config.network.clone(), &config.label)?;
        let listener = inherited_listener()?;
        listener.set_nonblocking(true)?;
        let poller = Poller::new()?;
        poller.add(listener.as_fd(), LISTENER)?;
        let mut spawner = Self {
            config,
            poller,
            listener,
            router,
            identities: Identities::default(),
            ready: Vec::new(),
            foreign_cables: BTreeSet::new(),
            watched: HashMap::new(),
            running: HashMap::new(),
            next_token: LISTENER + 1,
            ever_attached: false,
            stage: None,
            early_ends: HashMap::new(),
            settling: Vec::new(),
        };
        spawner.respect_earlier_sandboxes();
        Ok(spawner)
    }

    /// Runs until nobody needs it.
    pub(super) fn run(mut self) -> io::Result<()> {
        while self.is_needed() {
            let timeout = if self.wants_more() { IDLE_MS } else { TICK_MS };
            let mut ready = self.poller.wait(timeout)?;
            // Between two requests there is time to prepare for the next ones.
            while ready.is_empty() && self.wants_more() {
                self.prepare_one();
                ready = self.poller.wait(0)?;
            }
            for token in ready {
                self.handle(token);
            }
            self.collect_ended();
            self.settle();
        }
        if let Some(stage) = &self.stage {
            stage.remove()?;
        }
        self.router.stop()
    }

    fn is_needed(&self) -> bool {
        !self.ever_attached || !self.watched.is_empty() || !self.running.is_empty()
    }

    /// Whether something should be made ready.
    fn wants_more(&self) -> bool {
        self.ready.len() < self.config.ready_networks
            || self.identities.idle() < self.config.ready_networks
    }

    fn prepare_one(&mut self) {
        let prepared = if self.ready.len() < self.config.ready_networks {
            self.new_cable().map(|cable| self.ready.push(cable))
        } else {
            self.identities.make_ready()
        };
        if let Err(error) = prepared {
            // Launches will meet the same error and report it; don't spin on it here.
            log(&format!("preparing for the next sandboxes: {error}"));
            self.config.ready_networks = 0;
        }
    }

    /// Keeps away from ids and addresses of sandboxes that outlived their spawner, and connects
    /// them again: their cables went with the old router.
    fn respect_earlier_sandboxes(&mut self) {
        let dirs = std::fs::read_dir(self.config.data_dir.join("sandboxes"));
        for dir in dirs.into_iter().flatten().filter_map(Result::ok) {
            let Ok(launched) = read_json::<Launched>(&dir.path().join(files::LAUNCHED)) else {
                continue;
            };
            self.identities.reserve(launched.first_id);
            let Some(number) = launched.cable else { continue };
            self.foreign_cables.insert(number);
            if let (true, Ok(pidfd)) =
                (launched.lives(&dir.path()), process::open_pid(launched.pid))
                && let Err(error) = self.router.rewire(pidfd.as_fd(), number)
            {
                log(&format!("connecting {} again: {error}", dir.path().display()));
            }
        }
    }

    fn new_cable(&mut self) -> io::Result<Cable> {
        if !self.router.is_connected() {
            return self.router.closed();
        }
        let used: BTreeSet<u32> = self
            .running
            .values()
            .filter_map(|r| r.held.cable.number)
            .chain(self.ready.iter().filter_map(|c| c.number))
            .chain(self.foreign_cables.iter().copied())
            .collect();
        self.router.cable(|number| used.contains(&number))
    }

    fn watch(&mut self, what: Watched) -> io::Result<()> {
        let token = self.next_token;
        self.next_token += 1;
        match &what {
            Watched::Client(stream, _) | Watched::Attached(stream) => {
                self.poller.add(stream.as_fd(), token)?;
            }
            Watched::Starting(pending) => {
                self.poller.add(pending.starting.progress.as_fd(), token)?;
            }
            Watched::Process(pid) => {
                if let Some(running) = self.running.get(pid) {
                    self.poller.add(running.pidfd.as_fd(), token)?;
                }
            }
        }
        self.watched.insert(token, what);
        Ok(())
    }

    fn handle(&mut self, token: u64) {
        if token == LISTENER {
            while let Ok((stream, _)) = self.listener.accept() {
                let accepted = stream
                    .set_nonblocking(true)
                    .and_then(|()| self.watch(Watched::Client(stream, Vec::new())));
                if let Err(error) = accepted {
                    log(&format!("accepting a connection: {error}"));
                }
            }
            return;
        }
        match self.watched.remove(&token) {
            Some(Watched::Client(stream, line)) => self.read_request(token, stream, line),
            // It says nothing more; what arrives is its end.
            Some(Watched::Attached(stream)) => self.poller.remove(stream.as_fd()),
            Some(Watched::Starting(pending)) => self.finish_start(*pending),
            // Its end is collected below, with everybody's.
            Some(Watched::Process(_)) | None => {}
        }
    }

    fn read_request(&mut self, token: u64, mut stream: UnixStream, mut line: Vec<u8>) {
        let mut chunk = [0; 65_536];
        let ended = loop {
            match stream.read(&mut chunk) {
                Ok(0) => break true,
                Ok(got) => line.extend_from_slice(&chunk[..got]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                Err(_) => break true,
            }
            if line.ends_with(b"\n") || line.len() > REQUEST_BYTES_MAX {
                break false;
            }
        };
        if line.ends_with(b"\n") {
            self.poller.remove(stream.as_fd());
            self.obey(stream, &line);
        } else if !ended && line.len() <= REQUEST_BYTES_MAX {
            self.watched.insert(token, Watched::Client(stream, line));
        }
    }

    fn obey(&mut self, stream: UnixStream, line: &[u8]) {
        match serde_json::from_slice(line) {
            Ok(Request::Attach) => {
                self.ever_attached = true;
                let pid = i32::try_from(std::process::id()).unwrap_or(-1);
                answer(&stream, &Answer::Attached { generation: GENERATION, pid });
                if let Err(error) = self.watch(Watched::Attached(stream)) {
                    log(&format!("watching a server: {error}"));
                }
            }
            Ok(Request::Launch(launch)) => self.launch(stream, *launch),
            Ok(Request::Settle { id }) => self.settling.push((id, stream)),
            Err(error) => {
                answer(&stream, &Answer::Failed { message: format!("bad request: {error}") });
            }
        }
    }

    fn launch(&mut self, client: UnixStream, launch: Launch) {
        match self.start(&launch) {
            Ok(starting) => {
                // Whoever had this number before is not meant.
                self.early_ends.remove(&starting.pid);
                let pending = Box::new(Pending { client, launch, starting });
                if let Err(error) = self.watch(Watched::Starting(pending)) {
                    log(&format!("watching a start: {error}"));
                }
            }
            Err(error) => answer(&client, &Answer::Failed { message: error.to_string() }),
        }
    }

    fn start(&mut self, launch: &Launch) -> io::Result<Starting> {
        let cable = match (launch.network, self.ready.pop()) {
            (true, Some(cable)) => cable,
            (true, None) => self.new_cable()?,
            (false, ready) => {
                self.ready.extend(ready);
                self.router.closed()?
            }
        };
        let identity = self.identities.take()?;
        let started = match &launch.launcher {
            Launcher::Native => launch::native(launch, identity, cable),
            Launcher::Oci { .. } => match self.stage() {
                Ok(()) => {
                    let stage = self.stage.as_ref().expect("it has just been made");
                    oci::start(&self.config, stage, launch, identity, cable)
                }
                Err(error) => Err((error, identity, cable)),
            },
        };
        started.map_err(|(error, identity, _)| {
            self.identities.give_back(identity);
            error
        })
    }

    /// Makes the place where OCI runtimes look, when the first one needs it.
    fn stage(&mut self) -> io::Result<()> {
        if self.stage.is_none() {
            self.stage = Some(Stage::make(&self.config)?);
        }
        Ok(())
    }

    fn finish_start(&mut self, pending: Pending) {
        let Pending { client, launch, mut starting } = pending;
        let mut said = String::new();
        let heard = starting.progress.read_to_string(&mut said);
        let outcome = match (heard, &launch.launcher) {
            (Err(error), _) => Err(error.to_string()),
            (Ok(_), _) if !said.is_empty() => Err(said),
            (Ok(_), Launcher::Native) => Ok(()),
            (Ok(_), launcher) if launcher.is_gvisor() => Ok(()),
            (Ok(_), Launcher::Oci { .. }) => oci::finish(&mut starting),
        };
        if let Err(message) = outcome {
            if let (Launcher::Oci { .. }, Some(stage)) = (&launch.launcher, &self.stage) {
                stage.release(&launch.dir);
            }
            self.identities.give_back(starting.resources.identity);
            answer(&client, &Answer::Failed { message });
            return;
        }
        let launched = Launched {
            pid: starting.pid,
            spawner: i32::try_from(std::process::id()).unwrap_or(-1),
            log_fd: starting.resources.log.as_raw_fd(),
            log_inode: inode_of(&starting.resources.log),
            door: launch.door.clone(),
            cable: starting.resources.cable.number,
            first_id: starting.resources.identity.first_id,
            launcher: launch.launcher.clone(),
        };
        let kept = write_json(&starting.resources.file(files::LAUNCHED), &launched);
        let Starting { pid, pidfd, resources: held, .. } = starting;
        let running = Running { dir: launch.dir, held, launcher: launch.launcher, pidfd };
        self.running.insert(pid, running);
        let watched = match self.early_ends.remove(&pid) {
            Some(code) => {
                self.ended(pid, code);
                Ok(())
            }
            None => self.watch(Watched::Process(pid)),
        };
        match kept.and(watched) {
            Ok(()) => answer(&client, &Answer::Launched(launched)),
            Err(error) => answer(&client, &Answer::Failed { message: error.to_string() }),
        }
    }

    /// Ends what is to end, and tells those who wait for what has. One that was just being started
    /// is met again when it is.
    fn settle(&mut self) {
        for (id, client) in std::mem::take(&mut self.settling) {
            let starting = self.watched.values().filter_map(|what| match what {
                Watched::Starting(pending) if pending.launch.id == id => {
                    Some(&pending.starting.pidfd)
                }
                _ => None,
            });
            let running = self
                .running
                .values()
                .filter_map(|running| running.dir.ends_with(&id).then_some(&running.pidfd));
            let left: Vec<&OwnedFd> = starting.chain(running).collect();
            if left.is_empty() {
                answer(&client, &Answer::Settled);
                continue;
            }
            for pidfd in left {
                if let Err(error) = process::signal(pidfd.as_fd(), libc::SIGKILL) {
                    log(&format!("ending {id}: {error}"));
                }
            }
            self.settling.push((id, client));
        }
    }

    /// Writes down how ended sandboxes ended and takes back what they held.
    fn collect_ended(&mut self) {
        while let Some((pid, code)) = process::reap_any() {
            self.ended(pid, code);
        }
    }

    fn ended(&mut self, pid: i32, code: i32) {
        let Some(running) = self.running.remove(&pid) else {
            // A helper of ours, or a sandbox that ended before its start was finished. Numbers
            // are used again, so they are remembered only while somebody may ask.
            let asked = self.watched.values().any(|what| matches!(what, Watched::Starting(_)));
            if !asked || self.early_ends.len() == EARLY_ENDS_MAX {
                self.early_ends.clear();
            }
            if asked {
                self.early_ends.insert(pid, code);
            }
            return;
        };
        self.watched.retain(|_, what| !matches!(what, Watched::Process(p) if *p == pid));
        keep_last_words(&running, code);
        if let (Launcher::Oci { .. }, Some(stage)) = (&running.launcher, &self.stage) {
            stage.release(&running.dir);
        }
        self.identities.give_back(running.held.identity);
    }
}

/// Keeps the log, then the exit code: whoever sees the code finds the log.
fn keep_last_words(running: &Running, code: i32) {
    let mut ring = Vec::new();
    let mut file = std::fs::File::from(match running.held.log.try_clone() {
        Ok(fd) => fd,
        Err(error) => return log(&format!("reading a log: {error}")),
    });
    let kept = io::Seek::rewind(&mut file)
        .and_then(|()| file.read_to_end(&mut ring))
        .and_then(|_| {
            let mut said = crate::logs::from_ring(&ring).bytes;
            if said.is_empty() && code != 0 && running.launcher.is_gvisor() {
                said = oci::gvisor::complaint(&running.held);
            }
            std::fs::write(running.held.file(files::LOG), said)
        })
        .and_then(|()| write_json(&running.held.file(files::EXIT), &Ended { code }));
    // A sandbox that is being removed has no folder any more, and nobody asks for its end.
    if let Err(error) = kept
        && error.kind() != io::ErrorKind::NotFound
    {
        log(&format!("keeping the end of {}: {error}", running.dir.display()));
    }
}

/// Zero, which no file has, when it can't be told.
fn inode_of(fd: &OwnedFd) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let file = fd.try_clone().map(std::fs::File::from);
    file.and_then(|file| file.metadata()).map_or(0, |found| found.ino())
}

fn answer(mut client: &UnixStream, answer: &Answer) {
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    // A client that went away asks again or lists what is there.
    if let Err(error) = client.set_nonblocking(false).and_then(|()| client.write_all(&line)) {
        log(&format!("answering: {error}"));
    }
}

fn inherited_listener() -> io::Result<UnixListener> {
    use std::io::IsTerminal;
    if io::stdin().is_terminal() {
        return Err(io::Error::other("standard input must be the listening socket"));
    }
    let fd = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(UnixListener::from(fd))
}

pub(super) fn log(message: &str) {
    // Standard error is the spawner's log file.
    let _unheard = writeln!(io::stderr(), "atoll spawner: {message}");
}
