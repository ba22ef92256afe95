//! One long-lived shell: a program that runs texts one after another and reports how each ended.

use crate::{
    Result,
    command::Pipe,
    environment::Variables,
    guest::Shared,
    id,
    process::{Exit, Input, Launch, Spawned, Wiring, family, shell},
    sys,
};
use bytes::BytesMut;
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{io::AsyncWriteExt, net::unix::pipe::Sender};

const BASH_PROGRAM: &str = include_str!("bash.sh");
const POSIX_PROGRAM: &str = include_str!("posix.sh");
/// Longer than any report; a shell's own complaints while it starts arrive on the same pipe.
const REPORT_BYTES_MAX: usize = 4096;

/// A shell at work, and its side of the pipes.
#[derive(Debug)]
pub(super) struct Shell {
    pub(super) pid: i32,
    pub(super) exit: Exit,
    /// What the shell and everything it started print.
    pub(super) output: Pipe,
    /// What the shell reports.
    pub(super) reports: Reports,
    control: Sender,
}

/// The shell's reports on its runs.
#[derive(Debug)]
pub(super) struct Reports {
    pipe: Pipe,
    unread: BytesMut,
}

/// The run at work in a shell, as whoever wants to end it must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) pid: i32,
    pub(super) since_ticks: u64,
    pub(super) number: u64,
}

impl Shell {
    /// Starts the shell in `cwd`, or with a state that an earlier shell left. Blocks.
    pub(super) fn spawn(
        shared: &Shared,
        home: &Path,
        cwd: PathBuf,
        state: Option<PathBuf>,
    ) -> Result<Spawned> {
        let identity = shared.user.clone();
        let env = shared.environment.compose(identity.as_ref(), &Variables::new());
        let program = shell(&env);
        let posix = !program.ends_with("bash");
        let mut argv = vec![program.to_owned()];
        if !posix {
            argv.extend(["--noprofile", "--norc"].map(str::to_owned));
        }
        let text = if posix { POSIX_PROGRAM } else { BASH_PROGRAM };
        let name = if posix { "sh" } else { "bash" };
        argv.extend(["-c", text, name].map(str::to_owned));
        argv.push(home.to_string_lossy().into_owned());
        argv.push(state.unwrap_or_default().to_string_lossy().into_owned());
        // A directory that is gone must not make the session useless.
        let cwd = if cwd.is_dir() { cwd } else { PathBuf::from("/") };
        let wiring = Wiring::Split(Input::Pipe);
        Launch { argv, env, cwd, identity, wiring }.spawn(&shared.reaper)
    }

    /// Takes over the pipes of a started shell.
    pub(super) fn adopt(spawned: Spawned) -> io::Result<Self> {
        let Spawned { pid, exit, stdin, stdout, stderr } = spawned;
        let stdin = stdin.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self {
            pid,
            exit,
            output: Pipe::open(stdout),
            control: Sender::from_owned_fd(stdin)?,
            reports: Reports { pipe: Pipe::open(stderr), unread: BytesMut::new() },
        })
    }

    /// Tells the shell to run what has been laid out; answers the token of its report. A shell
    /// that has just ended is noticed by its exit.
    pub(super) async fn begin(&mut self, enter: bool) -> String {
        let token = id::fresh();
        let line = format!("{token}{}\n", if enter { " enter" } else { "" });
        self.control.write_all(line.as_bytes()).await.ok();
        token
    }

    /// Asks the shell and all it has started to end, as a closed terminal would. What ignores
    /// that, such as a program under `nohup`, goes on.
    pub(super) fn hang_up(&self, shared: &Shared) {
        shared.reaper.signal_group(self.pid, libc::SIGHUP);
    }
}

impl Reports {
    /// Waits for the report on a run and answers the exit code. Waits for ever when the shell can
    /// report no more. Safe to cancel.
    pub(super) async fn code_of(&mut self, token: &str) -> i32 {
        loop {
            while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line = self.unread.split_to(end + 1);
                let line = std::str::from_utf8(&line).unwrap_or_default();
                let code = line.strip_prefix(token).and_then(|code| code.trim().parse().ok());
                if let Some(code) = code {
                    return code;
                }
            }
            if self.unread.len() > REPORT_BYTES_MAX {
                self.unread.clear();
            }
            let bytes = self.pipe.read().await;
            self.unread.extend_from_slice(&bytes);
        }
    }
}

impl Current {
    pub(super) fn of(shell: &Shell, number: u64) -> Self {
        Self { pid: shell.pid, since_ticks: sys::boot_ticks(), number }
    }

    /// Asks what the run has started to end, but no earlier job.
    pub(super) async fn terminate_started(self, shared: &Arc<Shared>) {
        let signal = move || family::signal_since(self.pid, self.since_ticks, libc::SIGTERM);
        shared.start_blocking(signal).await;
    }

    /// Ends the run by force.
    pub(super) async fn kill(self, shared: &Arc<Shared>) {
        let reaper = shared.reaper.clone();
        let kill = move || {
            // Stopped, so that it neither goes on with its text nor loses its descendants before
            // they are found.
            reaper.signal_child(self.pid, libc::SIGSTOP);
            family::kill_since(self.pid, self.since_ticks);
            reaper.signal_child(self.pid, libc::SIGKILL);
        };
        shared.start_blocking(kill).await;
    }
}
