//! The bytes below a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use atoll_control::BoxedIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that remembers whether anything came back.
///
/// A service may answer before it has read the whole request and close. Its answer is there to be
/// read then, although nothing can be written any more; so a forgiving wire drops what it can't
/// write and leaves it to the reading side to find the end.
pub(super) struct Wire {
    io: BoxedIo,
    heard: Arc<AtomicBool>,
    forgiving: bool,
    deaf: bool,
}

impl Wire {
    /// Hides that the other side stopped listening.
    pub(super) fn forgiving(io: BoxedIo) -> Self {
        Self { forgiving: true, ..Self::plain(io) }
    }

    /// Reports everything.
    pub(super) fn plain(io: BoxedIo) -> Self {
        Self { io, heard: Arc::default(), forgiving: false, deaf: false }
    }

    /// Set whenever bytes come back; whoever sends a request clears it.
    pub(super) fn heard(&self) -> Arc<AtomicBool> {
        self.heard.clone()
    }

    /// `length` bytes were to be written, with this result.
    fn written(&mut self, result: io::Result<usize>, length: usize) -> io::Result<usize> {
        match result {
            Err(error) if self.forgiving && is_over(&error) => {
                self.deaf = true;
                Ok(length)
            }
            result => result,
        }
    }
}

fn is_over(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.io).poll_read(context, buffer));
        if buffer.filled().len() > before {
            self.heard.store(true, Ordering::Release);
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.deaf {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = ready!(Pin::new(&mut self.io).poll_write(context, bytes));
        Poll::Ready(self.written(written, bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        if self.deaf {
            return Poll::Ready(Ok(length));
        }
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(context, slices));
        Poll::Ready(self.written(written, length))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.deaf {
            return Poll::Ready(Ok(()));
        }
        let flushed = ready!(Pin::new(&mut self.io).poll_flush(context));
        Poll::Ready(self.written(flushed.map(|()| 0), 0).map(drop))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
