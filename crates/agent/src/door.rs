//! Where the agent is reached: a socket from the launcher, or a port with a secret.

use axum::{Router, serve::Listener};
use serde::Deserialize;
use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    os::{fd::OwnedFd, unix::net::UnixListener as StdListener},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream, UnixListener},
    sync::{Semaphore, mpsc},
    task::JoinHandle,
    time::timeout,
};

/// Connections that have not said the secret yet.
const STRANGERS_MAX: usize = 64;
/// How long one may take to say it.
const STRANGER_PATIENCE: Duration = Duration::from_secs(2);
/// Connections that have said it and wait to be served.
const GUESTS_MAX: usize = 16;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where the agent is reached.
#[derive(Debug)]
pub(crate) enum Door {
    /// A listening Unix socket that the launcher made; nobody inside can connect to it.
    Socket(OwnedFd),
    /// A port of the sandbox's own loopback.
    Port(Port),
}

/// A port that everybody inside can connect to: only who begins with the secret is served.
#[derive(Deserialize, PartialEq, Eq)]
pub(crate) struct Port {
    port: u16,
    secret: String,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Door {
    /// Answers requests from now on.
    pub(crate) async fn serve(self, app: Router) -> io::Result<JoinHandle<io::Result<()>>> {
        Ok(match self {
            Self::Socket(socket) => {
                let listener = StdListener::from(socket);
                listener.set_nonblocking(true)?;
                let serving = axum::serve(UnixListener::from_std(listener)?, app);
                tokio::spawn(async move { serving.await })
            }
            Self::Port(port) => {
                let serving = axum::serve(Guarded::open(port).await?, app);
                tokio::spawn(async move { serving.await })
            }
        })
    }
}

/// Hands out connections that have said the secret.
struct Guarded {
    address: SocketAddr,
    admitted: mpsc::Receiver<(TcpStream, SocketAddr)>,
}

impl Guarded {
    async fn open(port: Port) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.port)).await?;
        let address = listener.local_addr()?;
        let (admit, admitted) = mpsc::channel(GUESTS_MAX);
        tokio::spawn(guard(listener, Arc::from(port.secret), admit));
        Ok(Self { address, admitted })
    }
}

impl Listener for Guarded {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        match self.admitted.recv().await {
            Some(connection) => connection,
            // The guard never ends.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// Accepts for ever; one silent stranger does not keep others out.
async fn guard(
    listener: TcpListener,
    secret: Arc<str>,
    admit: mpsc::Sender<(TcpStream, SocketAddr)>,
) {
    let places = Arc::new(Semaphore::new(STRANGERS_MAX));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok((mut stream, from)) = listener.accept().await else {
            // Out of descriptors, most likely: others may close theirs.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (secret, admit) = (Arc::clone(&secret), admit.clone());
        tokio::spawn(async move {
            let known = timeout(STRANGER_PATIENCE, says(&mut stream, secret.as_bytes())).await;
            drop(place);
            // Without this the last small frame of a stream may wait for an acknowledgement.
            if known == Ok(true) && stream.set_nodelay(true).is_ok() {
                // Only a server that has ended takes no more.
                admit.send((stream, from)).await.ok();
            }
        });
    }
}

/// Whether the connection begins with the secret; how long that takes tells nothing about it.
async fn says(stream: &mut TcpStream, secret: &[u8]) -> bool {
    let mut said = vec![0; secret.len()];
    if secret.is_empty() || stream.read_exact(&mut said).await.is_err() {
        return false;
    }
    said.iter().zip(secret).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests;
