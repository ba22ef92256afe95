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
        let environment = shared.settings.current();
        let identity = environment.user().cloned();
        let env = environment.compose(identity.as_ref(), &Variables::new());
        let argv = command_line(shell(&env), home, state.as_deref());
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

/// The words that start a session's shell.
fn command_line(program: &str, home: &Path, state: Option<&Path>) -> Vec<String> {
    let words: &[&str] = match program.ends_with("bash") {
        true => &[program, "--noprofile", "--norc", "-c", BASH_PROGRAM, "bash"],
        false => &[program, "-c", POSIX_PROGRAM, "sh"],
    };
    let paths = [home, state.unwrap_or(Path::new(""))].map(Path::to_string_lossy);
    words.iter().map(|word| (*word).to_owned()).chain(paths.map(Into::into)).collect()
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

#[cfg(test)]
mod tests {
    use super::{super::home::Home, *};
    use std::{
        io::{BufRead, BufReader, Read, Write},
        process::{Command, Stdio},
    };

    /// Runs texts in one shell; answers the codes it reported, what it printed and how it ended.
    fn run(program: &str, home: &Home, texts: &[&str]) -> (Vec<String>, String, Option<i32>) {
        let argv = command_line(program, home.path(), home.newest_state().as_deref());
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut control = child.stdin.take().unwrap();
        let mut reports = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut codes = Vec::new();
        for text in texts {
            home.lay_out(text, Some(Path::new("/usr"))).unwrap();
            control.write_all(b"token enter\n").unwrap();
            codes.extend(reports.next().map(|line| line.unwrap()));
        }
        drop(control);
        let mut printed = String::new();
        child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        (codes, printed, child.wait().unwrap().code())
    }

    #[test]
    fn bash_and_a_plain_shell_keep_the_same_promises() {
        for program in ["/bin/bash", "/bin/sh"] {
            let home = Home::create(&id::fresh()).unwrap();
            let texts = ["x='a \"b'; f() { echo f $x; }", "f; pwd; (exit 4)", "echo $?; exit 7"];
            let (codes, printed, code) = run(program, &home, &texts);
            assert_eq!(codes, ["token 0", "token 4"], "{program}: {printed}");
            assert_eq!(printed, "f a \"b\n/usr\n4\n", "{program}");
            assert_eq!(code, Some(7), "{program}");
            let (codes, printed, code) = run(program, &home, &["echo $x; pwd", "set -C; nosuch"]);
            assert_eq!(codes, ["token 0", "token 127"], "{program}: {printed}");
            assert!(printed.starts_with("a \"b\n/usr\n"), "{program}: {printed}");
            assert!(printed.contains("nosuch"), "{program}: stderr joins stdout: {printed}");
            assert_eq!(code, Some(0), "{program}: it ends when nobody controls it");
        }
    }
}
