use super::{Stream, Terminal};
use crate::{command::Pipe, process::Exit, sys};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncWriteExt, Interest, unix::AsyncFd},
    net::unix::pipe::Sender,
    sync::Mutex,
    time::timeout,
};

const READ_BYTES: usize = 16 * 1024;
/// How long output may still come after the process ended, because a background job holds it.
const DRAIN_GRACE: Duration = Duration::from_millis(100);

/// The controlling side of a terminal.
#[derive(Debug)]
pub(crate) struct Master(AsyncFd<File>);

/// Where typed bytes go.
#[derive(Debug)]
pub(crate) enum TerminalInput {
    Master(Arc<Master>),
    Pipe(Mutex<Sender>),
}

impl Master {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        sys::watch_file(File::from(fd)).map(Self)
    }

    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.async_io(Interest::READABLE, |mut file| file.read(buffer)).await
    }

    async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.0.async_io(Interest::WRITABLE, |mut file| file.write(bytes)).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }
}

impl TerminalInput {
    pub(crate) fn pipe(fd: Option<OwnedFd>) -> io::Result<Self> {
        let fd = fd.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        Sender::from_owned_fd(fd).map(|sender| Self::Pipe(Mutex::new(sender)))
    }

    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Master(master) => master.write_all(bytes).await,
            Self::Pipe(pipe) => pipe.lock().await.write_all(bytes).await,
        }
    }

    pub(crate) fn resize(&self, cols: u16, rows: u16) -> io::Result<()> {
        match self {
            Self::Master(master) => sys::resize_terminal(master.0.get_ref(), cols, rows),
            Self::Pipe(_) => Ok(()),
        }
    }

    pub(crate) fn foreground_group(&self) -> Option<i32> {
        match self {
            Self::Master(master) => sys::foreground_group(master.0.get_ref()).ok(),
            Self::Pipe(_) => None,
        }
    }
}

/// Moves output into the history until the process has ended and nothing more comes.
pub(super) async fn pump(
    terminal: &Terminal,
    master: Option<Arc<Master>>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    mut exit: Exit,
) {
    let reading = async {
        match master {
            Some(master) => read_master(terminal, &master).await,
            None => {
                let out = read_pipe(terminal, Stream::Stdout, stdout);
                let err = read_pipe(terminal, Stream::Stderr, stderr);
                tokio::join!(out, err);
            }
        }
    };
    tokio::pin!(reading);
    let status = tokio::select! {
        () = &mut reading => exit.await,
        status = &mut exit => {
            // Whoever still holds the terminal's other side goes on unseen.
            timeout(DRAIN_GRACE, reading).await.ok();
            status
        }
    };
    terminal.ended(status.unwrap_or_default());
}

async fn read_master(terminal: &Terminal, master: &Master) {
    let mut buffer = vec![0; READ_BYTES];
    // The kernel answers EIO when the last process has closed its side.
    while let Ok(read @ 1..) = master.read(&mut buffer).await {
        terminal.push(Stream::Stdout, &buffer[..read]);
        terminal.wait_for_client().await;
    }
}

async fn read_pipe(terminal: &Terminal, stream: Stream, fd: Option<OwnedFd>) {
    let mut pipe = Pipe::open(fd);
    while pipe.is_open() {
        let bytes = pipe.read().await;
        if !bytes.is_empty() {
            terminal.push(stream, &bytes);
            terminal.wait_for_client().await;
        }
    }
}
