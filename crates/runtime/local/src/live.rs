//! Sandboxes that have a process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use atoll_control::BoxedIo;
use atoll_core::Exit;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::dial::Dialer;
use crate::files::read_json;
use crate::plan::{self, Plan};
use crate::protocol::{Ended, Launched, files};
use crate::sys::{self, process};

/// How long the spawner may take to write down an end.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest answer of an agent to the server itself.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Bytes of log quoted in an exit's message.
const QUOTE_BYTES: usize = 400;

/// Handles on one sandbox.
pub(crate) struct Live {
    pub(crate) launched: Launched,
    pub(crate) pidfd: Arc<OwnedFd>,
    ended: AsyncFd<OwnedFd>,
    /// The agent has answered once, in this server's life or an earlier one's.
    answered: AtomicBool,
    plan: OnceLock<Option<Plan>>,
    dialer: Arc<Dialer>,
    dir: PathBuf,
    /// Keeps the folder's place even when it is renamed; sockets are reached through it.
    dir_fd: OwnedFd,
}

impl Live {
    /// Takes hold of the sandbox in `dir`; `None` when it has no process (any more).
    pub(crate) fn adopt(dir: &Path, dialer: Arc<Dialer>) -> io::Result<Option<Self>> {
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
        let plan = OnceLock::new();
        Ok(Some(Self { launched, pidfd, ended, answered, plan, dialer, dir, dir_fd }))
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
    pub(crate) async fn agent(&self) -> io::Result<BoxedIo> {
        if let Some(door) = &self.launched.door {
            let mut stream = self.dialer.try_dial(Arc::clone(&self.pidfd), door.port).await?;
            stream.write_all(door.secret.as_bytes()).await?;
            return Ok(Box::new(stream));
        }
        let path = format!("/proc/self/fd/{}/{}", self.dir_fd.as_raw_fd(), files::SOCKET);
        Ok(Box::new(UnixStream::connect(path).await?))
    }

    /// A first connection to the agent. A socket listens from the start; a port only once the
    /// agent is up, so it is tried until then.
    async fn first_connection(&self) -> io::Result<BoxedIo> {
        const PAUSE: Duration = Duration::from_millis(5);
        loop {
            match self.agent().await {
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionRefused
                        && self.launched.door.is_some()
                        && !self.has_ended() =>
                {
                    tokio::time::sleep(PAUSE).await;
                }
                other => return other,
            }
        }
    }

    /// What it was made by; plans of half-made sandboxes can't be read.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.plan.get_or_init(|| read_json(&self.dir.join(plan::FILE)).ok()).as_ref()
    }

    /// Returns when the agent says that the sandbox is up, or why it never will be.
    pub(crate) async fn wait_answer(&self) -> io::Result<Result<(), String>> {
        let stream = self.first_connection().await?;
        let up = b"GET /atoll/up HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n";
        match ask(stream, up).await? {
            (200, _) => {
                std::fs::File::create(self.dir.join(files::ANSWERED))?;
                self.answered.store(true, Ordering::Release);
                Ok(Ok(()))
            }
            (503, problem) => Ok(Err(problem)),
            (status, _) => Err(io::Error::other(format!("the agent answered {status}"))),
        }
    }

    /// Tells the agent what commands start from; its complaint, if it has one. A `claim` is made
    /// by somebody else than its maker, and the agent remembers that.
    pub(crate) async fn configure(
        &self,
        key: &str,
        body: &str,
        claim: bool,
    ) -> io::Result<Result<(), String>> {
        let length = body.len();
        let claim = if claim { "atoll-claim: 1\r\n" } else { "" };
        let request = format!(
            "POST /atoll/configure HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\
             atoll-key: {key}\r\n{claim}content-length: {length}\r\n\r\n{body}"
        );
        match ask(self.agent().await?, request.as_bytes()).await? {
            (200, _) => Ok(Ok(())),
            (422, problem) => Ok(Err(problem)),
            (status, _) => Err(io::Error::other(format!("the agent answered {status}"))),
        }
    }

    /// Whether nobody has claimed it.
    pub(crate) async fn is_untouched(&self) -> io::Result<bool> {
        let question = b"GET /atoll/untouched HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n";
        Ok(ask(self.agent().await?, question).await?.0 == 200)
    }

    /// How it ended, once it has.
    pub(crate) async fn exit(&self, oom_kills: u64) -> Exit {
        last_words(&self.dir, oom_kills).await
    }
}

/// One request and its answer: status and body.
async fn ask(mut stream: BoxedIo, request: &[u8]) -> io::Result<(u16, String)> {
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    match status {
        Some(status) => Ok((status, body.to_owned())),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
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
