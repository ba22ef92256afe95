//! One HTTP/1.1 connection to a port of a sandbox.

use atoll_control::BoxedIo;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;

/// Largest head of an answer that is read, in bytes.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most headers of an answer that are read.
pub const HEADERS_MAX: usize = 100;

/// The sending end of a connection; its task ends with it.
pub(crate) struct Link(SendRequest<Body>);

/// A request that found its connection dead.
pub(crate) enum SendError {
    /// Not a byte was sent: the request is whole and may go elsewhere.
    Unsent(Box<Request<Body>>),
    /// It may have been sent.
    Broken(hyper::Error),
}

impl Link {
    /// Speaks HTTP on `io` from now on; a 101 answer hands the stream over.
    pub(crate) async fn open(io: BoxedIo) -> Result<Self, hyper::Error> {
        let (sender, connection) = Builder::new()
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(io))
            .await?;
        // Its error also reaches whoever waits for the answer, so nothing is lost here.
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Ok(Self(sender))
    }

    /// Sends `request` and waits for the head of its answer.
    pub(crate) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, SendError> {
        self.0.try_send_request(request).await.map_err(|mut error| match error.take_message() {
            Some(request) => SendError::Unsent(Box::new(request)),
            None => SendError::Broken(error.into_error()),
        })
    }

    /// Waits until another request can be sent; false when the connection is over.
    pub(crate) async fn rested(&mut self) -> bool {
        self.0.ready().await.is_ok()
    }

    /// The other side is known to be gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}
