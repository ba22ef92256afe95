//! A two-way stream into a sandbox, whatever carries it.

use tokio::io::{AsyncRead, AsyncWrite};

/// Anything that reads and writes bytes.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Such a stream on the heap.
pub type BoxedIo = Box<dyn Io>;
