//! One HTTP/1.1 connection to a port of a sandbox.

mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_control::BoxedIo;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;

use wire::Wire;

/// Largest head of an answer that is read, in bytes.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most headers of an answer that are read.
pub const HEADERS_MAX: usize = 100;

/// The sending end of a connection; its task ends with it.
pub(crate) struct Link {
    sender: SendRequest<Body>,
    heard: Arc<AtomicBool>,
}

/// A request without a whole head of an answer.
pub(crate) struct SendError {
    /// What happened to the connection.
    pub(crate) error: hyper::Error,
    /// Something came back, so the other side has begun to act on the request.
    pub(crate) heard: bool,
}

impl Link {
    /// Speaks HTTP on `io` from now on, and reads an answer even after the other side stopped
    /// listening to the request.
    pub(crate) async fn open(io: BoxedIo) -> Result<Self, hyper::Error> {
        Self::over(Wire::forgiving(io)).await
    }

    /// The same for a request that asks for a change of protocol: its 101 hands the stream over.
    pub(crate) async fn open_for_upgrade(io: BoxedIo) -> Result<Self, hyper::Error> {
        Self::over(Wire::plain(io)).await
    }

    async fn over(wire: Wire) -> Result<Self, hyper::Error> {
        let heard = wire.heard();
        let (sender, connection) = Builder::new()
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(wire))
            .await?;
        // Its error also reaches whoever waits for the answer, so nothing is lost here.
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Ok(Self { sender, heard })
    }

    /// Sends `request` and waits for the head of its answer.
    pub(crate) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, SendError> {
        self.heard.store(false, Ordering::Release);
        let sent = self.sender.send_request(request).await;
        sent.map_err(|error| SendError { error, heard: self.heard.load(Ordering::Acquire) })
    }

    /// Waits until another request can be sent; false when the connection is over.
    pub(crate) async fn rested(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// The other side is known to be gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}
