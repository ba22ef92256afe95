//! Connections to ports inside a sandbox, opened from within its network namespace.
//!
//! A service that listens on the sandbox's own loopback is reached, and nothing has to be
//! published on the host. A socket keeps the namespace it was made in, so one thread that hops
//! from namespace to namespace makes them all; connecting is then ordinary asynchronous work.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;

use crate::sys::{process, socket};

/// A sandbox's first process, and where to send the socket.
type Order = (Arc<OwnedFd>, oneshot::Sender<io::Result<OwnedFd>>);

/// Opens connections.
pub(crate) struct Dialer(Sender<Order>);

impl Dialer {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, inbox) = channel();
        let home: OwnedFd = File::open("/proc/thread-self/ns/net")?.into();
        std::thread::Builder::new().name("dialer".into()).spawn(move || work(&home, &inbox))?;
        Ok(Self(orders))
    }

    /// Connects to `port` on the loopback of the sandbox whose first process is `pidfd`.
    pub(crate) async fn dial(&self, pidfd: Arc<OwnedFd>, port: u16) -> io::Result<TcpStream> {
        connect(self.socket(pidfd).await?, port).await
    }

    /// The same where nobody may listen yet. From another address than the one that is called:
    /// otherwise the kernel may choose the called port as our own, connect us to ourselves, and
    /// keep the port from whoever wants to listen there.
    pub(crate) async fn try_dial(&self, pidfd: Arc<OwnedFd>, port: u16) -> io::Result<TcpStream> {
        const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
        let socket = self.socket(pidfd).await?;
        socket.bind((ELSEWHERE, 0).into())?;
        connect(socket, port).await
    }

    /// A socket of that sandbox's network namespace.
    async fn socket(&self, pidfd: Arc<OwnedFd>) -> io::Result<TcpSocket> {
        let (reply, made) = oneshot::channel();
        let gone = |_| io::Error::other("the dialer is gone");
        self.0.send((pidfd, reply)).map_err(|_| io::Error::other("the dialer is gone"))?;
        let socket = made.await.map_err(gone)??;
        Ok(TcpSocket::from_std_stream(std::net::TcpStream::from(socket)))
    }
}

async fn connect(socket: TcpSocket, port: u16) -> io::Result<TcpStream> {
    let stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn work(home: &OwnedFd, inbox: &Receiver<Order>) {
    while let Ok((pidfd, reply)) = inbox.recv() {
        let made = process::join(pidfd.as_fd(), libc::CLONE_NEWNET).and_then(|()| socket::tcp());
        // Staying would keep a dead sandbox's network alive.
        if let Err(error) = process::join(home.as_fd(), libc::CLONE_NEWNET) {
            tracing::error!(%error, "the dialer can't get home");
            return;
        }
        // The caller may have given up meanwhile.
        let _unwanted = reply.send(made);
    }
}
