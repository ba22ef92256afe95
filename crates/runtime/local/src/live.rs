//! Sandboxes that have a process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atoll_core::Exit;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::files::read_json;
use crate::protocol::{Ended, Launched, files};
use crate::sys::{self, process};

/// How long the spawner may take to write down an end.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of log quoted in an exit's message.
const QUOTE_BYTES: usize = 400;

/// Handles on one sandbox.
pub(crate) struct Live {
    pub(crate) launched: Launched,
    pub(crate) pidfd: Arc<OwnedFd>,
    ended: AsyncFd<OwnedFd>,
    /// The agent has answered once, in this server's life or an earlier one's.
    answered: AtomicBool,
    dir: PathBuf,
    /// Keeps the folder's place even when it is renamed; sockets are reached through it.
    dir_fd: OwnedFd,
}

impl Live {
    /// Takes hold of the sandbox in `dir`; `None` when it has no process (any more).
    pub(crate) fn adopt(dir: &Path) -> io::Result<Option<Self>> {
        let launched: Launched = match read_json(&dir.join(files::LAUNCHED)) {
            Ok(launched) => launched,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let pidfd = match process::open_pid(launched.pid) {
            Ok(pidfd) => pidfd,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !launched.lives(dir) {
            return Ok(None);
        }
        let ended = process::watch(pidfd.try_clone()?)?;
        let dir_fd = sys::open_path(dir)?;
        let answered = AtomicBool::new(dir.join(files::ANSWERED).exists());
        let (pidfd, dir) = (Arc::new(pidfd), dir.to_owned());
        Ok(Some(Self { launched, pidfd, ended, answered, dir, dir_fd }))
    }

    /// Whether the agent has answered once: from then on the sandbox runs until it ends.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    /// Whether its first process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        process::has_ended(self.pidfd.as_fd())
    }

    /// Kills its first process, and with it all others.
    pub(crate) fn kill(&self) -> io::Result<()> {
        process::signal(self.pidfd.as_fd(), libc::SIGKILL)
    }

    /// Returns when its first process has ended.
    pub(crate) async fn wait_ended(&self) -> io::Result<()> {
        while !self.has_ended() {
            self.ended.readable().await?.clear_ready();
        }
        Ok(())
    }

    /// A connection to the agent.
    pub(crate) async fn agent(&self) -> io::Result<UnixStream> {
        let path = format!("/proc/self/fd/{}/{}", self.dir_fd.as_raw_fd(), files::SOCKET);
        UnixStream::connect(path).await
    }

    /// Returns when the agent has answered. The socket listens from the start, so the question
    /// waits for the agent and nobody polls.
    pub(crate) async fn wait_answer(&self) -> io::Result<()> {
        const QUESTION: &[u8] = b"GET /ping HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n";
        let mut stream = self.agent().await?;
        stream.write_all(QUESTION).await?;
        let mut start = [0; 12];
        stream.read_exact(&mut start).await?;
        if &start == b"HTTP/1.1 200" {
            std::fs::File::create(self.dir.join(files::ANSWERED))?;
            self.answered.store(true, Ordering::Release);
            return Ok(());
        }
        let said = String::from_utf8_lossy(&start).into_owned();
        Err(io::Error::other(format!("the agent answered {said:?} to a ping")))
    }

    /// How it ended, once it has.
    pub(crate) async fn exit(&self, oom_kills: u64) -> Exit {
        last_words(&self.dir, oom_kills).await
    }
}

/// How the sandbox in `dir` ended: what its spawner writes down, or will in a moment.
pub(crate) async fn last_words(dir: &Path, oom_kills: u64) -> Exit {
    let file = dir.join(files::EXIT);
    let writer = read_json::<Launched>(&dir.join(files::LAUNCHED)).map(|l| l.spawner);
    let lives = writer.is_ok_and(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"spawner")
    });
    let deadline = tokio::time::Instant::now() + LAST_WORDS_TIMEOUT;
    while lives && !file.exists() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    exit_of(dir, oom_kills)
}

/// How the sandbox in `dir` ended, as far as was written down.
pub(crate) fn exit_of(dir: &Path, oom_kills: u64) -> Exit {
    /// What a shell says of a process that was killed.
    const KILLED: i32 = 128 + libc::SIGKILL;
    let code = read_json::<Ended>(&dir.join(files::EXIT)).map_or(KILLED, |ended| ended.code);
    let log = std::fs::read(dir.join(files::LOG)).unwrap_or_default();
    let quote = &log[log.len().saturating_sub(QUOTE_BYTES)..];
    Exit {
        code,
        out_of_memory: oom_kills > 0 && code == KILLED,
        message: String::from_utf8_lossy(quote).trim().to_owned(),
    }
}
