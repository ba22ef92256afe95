//! The server's side of talking to the spawner.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener as StdListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::config::Layout;
use crate::protocol::{Answer, GENERATION, Launch, Launched, Request, SpawnerConfig};

/// Longest answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// A spawner that takes longer than this to answer an attach is not coming up.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts the spawner when there is none and talks to it.
pub(crate) struct Spawner {
    layout: Layout,
    program: PathBuf,
    config: SpawnerConfig,
    /// The connection that keeps the spawner.
    attached: Mutex<Option<UnixStream>>,
}

impl Spawner {
    pub(crate) fn new(layout: Layout, program: PathBuf, config: SpawnerConfig) -> Self {
        Self { layout, program, config, attached: Mutex::new(None) }
    }

    /// Makes sure that a spawner runs and stays.
    pub(crate) async fn attach(&self) -> io::Result<()> {
        let mut attached = self.attached.lock().await;
        if attached.as_ref().is_some_and(is_open) {
            return Ok(());
        }
        let first = tokio::time::timeout(ATTACH_TIMEOUT, self.ask(&Request::Attach)).await;
        let (stream, answer) = match first.map_err(|_| self.dead("it does not answer"))? {
            Ok(answered) => answered,
            // Any other error says nothing about whether a spawner is there; a second one would
            // take the network from the first.
            Err(error) if !is_nobody(&error) => return Err(error),
            Err(_) => {
                self.start()?;
                let asked = tokio::time::timeout(ATTACH_TIMEOUT, self.ask(&Request::Attach));
                asked
                    .await
                    .map_err(|_| self.dead("it does not answer"))?
                    .map_err(|e| self.dead(&e.to_string()))?
            }
        };
        match answer {
            Answer::Attached { generation, .. } if generation == GENERATION => {}
            Answer::Attached { generation, .. } => {
                return Err(io::Error::other(format!(
                    "a spawner of generation {generation} still holds sandboxes of another version \
                     of atoll (this one speaks {GENERATION}): remove them with that version first"
                )));
            }
            Answer::Launched(_) | Answer::Settled | Answer::Failed { .. } => {
                return Err(io::Error::other("the spawner answered something else"));
            }
        }
        *attached = Some(stream);
        Ok(())
    }

    /// Starts a sandbox. The outer error is the connection's, the inner one the spawner's word.
    pub(crate) async fn launch(
        &self,
        launch: Launch,
        patience: Duration,
    ) -> io::Result<Result<Launched, String>> {
        self.attach().await?;
        let request = Request::Launch(Box::new(launch));
        let asked = tokio::time::timeout(patience, self.ask(&request));
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it did not start in time");
        match asked.await.map_err(late)??.1 {
            Answer::Launched(launched) => Ok(Ok(launched)),
            Answer::Failed { message } => Ok(Err(message)),
            Answer::Attached { .. } | Answer::Settled => {
                Err(io::Error::other("the spawner answered something else"))
            }
        }
    }

    /// Ends what there is of a sandbox. From then on nothing is written about it: neither about
    /// its end nor about a launch that an earlier server asked for.
    pub(crate) async fn settle(&self, id: &str, patience: Duration) -> io::Result<()> {
        self.attach().await?;
        let request = Request::Settle { id: id.to_owned() };
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not end");
        match tokio::time::timeout(patience, self.ask(&request)).await.map_err(late)??.1 {
            Answer::Settled => Ok(()),
            Answer::Failed { message } => Err(io::Error::other(message)),
            Answer::Attached { .. } | Answer::Launched(_) => {
                Err(io::Error::other("the spawner answered something else"))
            }
        }
    }

    /// One request, one answer.
    async fn ask(&self, request: &Request) -> io::Result<(UnixStream, Answer)> {
        let stream = UnixStream::connect(self.layout.spawner_socket()).await?;
        let mut stream = BufReader::new(stream);
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        let mut answer = String::new();
        (&mut stream).take(ANSWER_BYTES_MAX).read_line(&mut answer).await?;
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok((stream.into_inner(), serde_json::from_str(&answer)?))
    }

    /// Starts a spawner that lives on without us. It gets the listening socket as its standard
    /// input, so that we can connect before it is up.
    fn start(&self) -> io::Result<()> {
        let path = self.layout.spawner_socket();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener: OwnedFd = StdListener::bind(&path)?.into();
        // Begun anew with each spawner, so that it can't grow for ever.
        let log = std::fs::File::create(self.layout.spawner_log())?;
        use std::os::unix::process::CommandExt;
        std::process::Command::new(&self.program)
            .arg("spawner")
            .arg(serde_json::to_string(&self.config)?)
            .current_dir("/")
            .stdin(Stdio::from(listener))
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("starting the spawner: {e}")))
            .map(reap_in_background)
    }

    fn dead(&self, why: &str) -> io::Error {
        let log = std::fs::read_to_string(self.layout.spawner_log()).unwrap_or_default();
        let said = log.lines().last().unwrap_or("nothing in its log").to_owned();
        io::Error::other(format!("the spawner does not come up ({why}); it said: {said}"))
    }
}

/// Nobody listens there, or whoever did is just leaving.
pub(crate) fn is_nobody(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(
        error.kind(),
        NotFound | ConnectionRefused | ConnectionReset | UnexpectedEof | BrokenPipe
    )
}

/// A spawner that leaves before us must not stay a zombie.
fn reap_in_background(mut spawner: std::process::Child) {
    std::thread::spawn(move || spawner.wait());
}

/// Whether the other side is still there: it never says anything more.
fn is_open(stream: &UnixStream) -> bool {
    let mut byte = [0];
    matches!(stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}
