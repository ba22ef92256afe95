//! Terminals: interactive processes whose output can be replayed after a reconnect.

mod history;
pub(crate) mod io;

pub use history::{Piece, Stream};

use crate::{
    Error, Result,
    environment::Variables,
    guest::Shared,
    id,
    process::{Input, Launch, Spawned, Wiring, shell},
    sys,
};
use history::History;
use io::{Master, TerminalInput};
use std::{
    collections::HashMap,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

const TERMINALS_MAX: usize = 256;
/// How far a client may lag behind before the process has to wait for it.
const LAG_BYTES_MAX: u64 = 512 * 1024;

/// All terminals of the sandbox.
#[derive(Debug)]
pub struct Terminals {
    shared: Arc<Shared>,
    by_id: Mutex<HashMap<String, Arc<Terminal>>>,
}

/// Whether the process gets a real terminal or plain pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A terminal.
    Terminal,
    /// Pipes, with stderr apart.
    Pipes,
}

/// One terminal; its process starts when the first client attaches.
#[derive(Debug)]
pub struct Terminal {
    id: String,
    shared: Arc<Shared>,
    cwd: Option<String>,
    command: Option<String>,
    state: Mutex<State>,
    starting: tokio::sync::Mutex<()>,
    /// Bumped on every change that an attached client or the reading side waits for.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    history: History,
    process: Option<Process>,
    exit_code: Option<i32>,
    /// The attachment in charge and how far it has read.
    client: Option<(u64, u64)>,
    attachments: u64,
    closed: bool,
}

#[derive(Debug, Clone)]
struct Process {
    pid: i32,
    mode: Mode,
    input: Arc<TerminalInput>,
}

/// A terminal's condition at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether its process runs.
    pub running: bool,
    /// How many bytes it has printed so far.
    pub output_offset: u64,
}

/// What an attached client should do next.
#[derive(Debug)]
pub enum Next {
    /// Show this.
    Output(Piece),
    /// The process ended with this code and everything has been shown.
    Ended(i32),
    /// Another client took over.
    Replaced,
    /// The terminal was deleted.
    Closed,
}

/// A client's hold on a terminal; dropping it detaches.
#[derive(Debug)]
pub struct Attachment {
    terminal: Arc<Terminal>,
    number: u64,
    position: u64,
    /// What was printed before this client came; the rest it sees live.
    replay_end: u64,
    changed: watch::Receiver<u64>,
}

impl Terminals {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, by_id: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Terminal>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a terminal for a shell command, or an interactive shell; answers its id.
    pub fn open(&self, cwd: Option<String>, command: Option<String>) -> Result<String> {
        let mut terminals = self.lock();
        if terminals.len() >= TERMINALS_MAX {
            return Err(Error::Full { what: "terminals", limit: TERMINALS_MAX });
        }
        let id = id::fresh();
        let terminal = Terminal {
            id: id.clone(),
            shared: Arc::clone(&self.shared),
            cwd: cwd.filter(|cwd| !cwd.is_empty()),
            command: command.filter(|command| !command.is_empty()),
            state: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            changed: watch::Sender::new(0),
        };
        terminals.insert(id.clone(), Arc::new(terminal));
        Ok(id)
    }

    /// The terminal with this id.
    pub fn find(&self, id: &str) -> Result<Arc<Terminal>> {
        let found = self.lock().get(id).cloned();
        found.ok_or_else(|| Error::Unknown { kind: "terminal", id: id.to_owned() })
    }

    /// Hangs up and forgets a terminal.
    pub fn close(&self, id: &str) -> Result<()> {
        let unknown = || Error::Unknown { kind: "terminal", id: id.to_owned() };
        let terminal = self.lock().remove(id).ok_or_else(unknown)?;
        terminal.close();
        Ok(())
    }
}

impl Terminal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How it is doing.
    pub fn condition(&self) -> Condition {
        let state = self.state();
        Condition {
            running: state.process.is_some() && state.exit_code.is_none(),
            output_offset: state.history.total(),
        }
    }

    /// Attaches a client that wants output from byte `since` on, starting the process if needed.
    pub async fn attach(
        self: &Arc<Self>,
        mode: Mode,
        since: Option<u64>,
        takeover: bool,
    ) -> Result<Attachment> {
        let attachment = self.claim(since, takeover)?;
        let _start = self.starting.lock().await;
        if self.state().process.is_none() {
            self.start(mode).await?;
        }
        Ok(attachment)
    }

    fn claim(self: &Arc<Self>, since: Option<u64>, takeover: bool) -> Result<Attachment> {
        let mut state = self.state();
        if state.closed {
            return Err(Error::Unknown { kind: "terminal", id: self.id.clone() });
        }
        if state.client.is_some() && !takeover {
            return Err(Error::Attached { id: self.id.clone() });
        }
        state.attachments += 1;
        let (number, position) = (state.attachments, state.history.clamp(since.unwrap_or(0)));
        let replay_end = state.history.total();
        state.client = Some((number, position));
        drop(state);
        self.wake();
        let changed = self.changed.subscribe();
        Ok(Attachment { terminal: Arc::clone(self), number, position, replay_end, changed })
    }

    async fn start(self: &Arc<Self>, mode: Mode) -> Result<()> {
        let this = Arc::clone(self);
        let started = self.shared.start_blocking(move || this.spawn(mode)).await?;
        let (Spawned { pid, exit, stdin, stdout, stderr }, master) = started;
        let (input, master) = match master {
            Some(master) => (TerminalInput::Master(Arc::clone(&master)), Some(master)),
            None => (TerminalInput::pipe(stdin).map_err(Error::system("open the input"))?, None),
        };
        self.state().process = Some(Process { pid, mode, input: Arc::new(input) });
        let this = Arc::clone(self);
        tokio::spawn(async move {
            io::pump(&this, master, stdout, stderr, exit).await;
        });
        Ok(())
    }

    fn spawn(&self, mode: Mode) -> Result<(Spawned, Option<Arc<Master>>)> {
        let environment = self.shared.settings.current();
        let identity = environment.user().cloned();
        let own = Variables::from([("TERM".to_owned(), "xterm-256color".to_owned())]);
        let env = environment.compose(identity.as_ref(), &own);
        let cwd = match &self.cwd {
            Some(cwd) => environment.expand(cwd, identity.as_ref()),
            None => environment.cwd().to_owned(),
        };
        let argv = match &self.command {
            Some(command) => Launch::shell_argv(&env, command),
            None => vec![shell(&env).to_owned()],
        };
        let failed = Error::system("open a terminal");
        let (master, wiring) = match mode {
            Mode::Pipes => (None, Wiring::Split(Input::Pipe)),
            Mode::Terminal => {
                let (master, slave) = sys::open_terminal().map_err(failed)?;
                (Some(master), Wiring::Terminal(slave))
            }
        };
        let launch = Launch { argv, env, cwd, identity, wiring };
        let spawned = launch.spawn(&self.shared.reaper)?;
        let master = master.map(Master::new).transpose();
        Ok((spawned, master.map_err(Error::system("watch the terminal"))?.map(Arc::new)))
    }

    fn process(&self) -> Option<Process> {
        self.state().process.clone()
    }

    /// The mode its process was started in.
    pub fn mode(&self) -> Option<Mode> {
        self.process().map(|process| process.mode)
    }

    /// Types bytes; waits while the process does not read.
    pub async fn write(&self, bytes: &[u8]) -> Result<()> {
        let gone = || Error::NotRunning { kind: "terminal", id: self.id.clone() };
        let process = self.process().ok_or_else(gone)?;
        process.input.write(bytes).await.map_err(Error::system("write to the terminal"))
    }

    /// Sets the size in characters; pipes have none.
    pub fn resize(&self, cols: u16, rows: u16) -> Result<()> {
        match self.process().map(|process| process.input) {
            Some(input) => input.resize(cols, rows).map_err(Error::system("resize the terminal")),
            None => Ok(()),
        }
    }

    /// Signals the foreground job of a terminal, or the process group behind pipes.
    pub fn signal(&self, signal: i32) -> Result<()> {
        let gone = || Error::NotRunning { kind: "terminal", id: self.id.clone() };
        let process = self.process().ok_or_else(gone)?;
        match process.input.foreground_group() {
            Some(group) => {
                sys::signal_group(group, signal).map_err(Error::system("signal the job"))
            }
            None => {
                let sent = self.shared.reaper.signal_group(process.pid, signal);
                sent.then_some(()).ok_or_else(gone)
            }
        }
    }

    fn close(&self) {
        let process = {
            let mut state = self.state();
            state.closed = true;
            state.process.clone().filter(|_| state.exit_code.is_none())
        };
        if let Some(process) = process {
            // An interactive shell ignores SIGTERM but not a hang-up; the rest goes after the grace.
            self.shared.reaper.signal_group(process.pid, libc::SIGHUP);
            crate::command::interrupt_group(&self.shared, process.pid);
        }
        self.wake();
    }

    fn push(&self, stream: Stream, bytes: &[u8]) {
        self.state().history.push(stream, bytes);
        self.wake();
    }

    /// Waits while an attached client is too far behind.
    async fn wait_for_client(&self) {
        let mut changed = self.changed.subscribe();
        loop {
            let lag = {
                let state = self.state();
                state.client.map_or(0, |(_, position)| state.history.total() - position)
            };
            if lag < LAG_BYTES_MAX || changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn ended(&self, status: ExitStatus) {
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        self.state().exit_code = Some(code.unwrap_or(-1));
        self.wake();
    }
}

impl Attachment {
    /// Where the next output begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Everything printed before the client attached, with the position it begins at.
    pub fn replay(&mut self) -> (u64, Vec<u8>) {
        let (start, mut bytes) = self.terminal.state().history.since(self.position);
        bytes.truncate(self.replay_end.saturating_sub(start) as usize);
        self.advance(start + bytes.len() as u64);
        (start, bytes)
    }

    /// Waits for the next thing to do. Safe to cancel.
    pub async fn next(&mut self) -> Next {
        loop {
            self.changed.mark_unchanged();
            if let Some(next) = self.poll() {
                return next;
            }
            if self.changed.changed().await.is_err() {
                return Next::Closed;
            }
        }
    }

    fn poll(&mut self) -> Option<Next> {
        let (piece, end) = {
            let state = self.terminal.state();
            match state.client {
                Some((number, _)) if number == self.number => {}
                _ => return Some(Next::Replaced),
            }
            let end =
                if state.closed { Some(Next::Closed) } else { state.exit_code.map(Next::Ended) };
            (state.history.piece(self.position), end)
        };
        let Some(piece) = piece else { return end };
        self.advance(piece.offset + piece.bytes.len() as u64);
        Some(Next::Output(piece))
    }

    fn advance(&mut self, position: u64) {
        self.position = position;
        let mut state = self.terminal.state();
        if let Some((number, seen)) = &mut state.client
            && *number == self.number
        {
            *seen = position;
        }
        drop(state);
        self.terminal.wake();
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let mut state = self.terminal.state();
        if state.client.is_some_and(|(number, _)| number == self.number) {
            state.client = None;
        }
        drop(state);
        self.terminal.wake();
    }
}
