//! Bodies that nobody read.
//!
//! A request may be answered before its body was read: refused for its key, say. Closing the
//! connection then would surprise a client that sends its next request on it, and could even
//! destroy the answer on its way. So a small rest is read and dropped, and before a large one the
//! answer says that the connection ends.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header::{self, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::runtime::Handle;

/// Most bytes that are read for nobody.
const LEFTOVER_BYTES_MAX: u64 = 1024 * 1024;
/// Longest time that takes.
const LEFTOVER_TIME_MAX: Duration = Duration::from_secs(5);

/// Sees to what handlers leave of bodies.
pub(crate) async fn leftover(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let length = request.body().size_hint().exact();
    // A client that waits for leave to send its body doesn't get it any more.
    let is_coming = !request.headers().contains_key(header::EXPECT);
    let left = Arc::new(AtomicBool::new(false));
    let lent = |body| Body::new(Lent { body, is_coming, is_over: false, left: left.clone() });
    let mut response = next.run(request.map(lent)).await;
    let is_small = length.is_some_and(|length| length <= LEFTOVER_BYTES_MAX);
    if left.load(Relaxed) && !(is_coming && is_small) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A body that doesn't get lost.
struct Lent {
    body: Body,
    is_coming: bool,
    is_over: bool,
    left: Arc<AtomicBool>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.is_over || self.body.is_end_stream() {
            return;
        }
        self.left.store(true, Relaxed);
        if let (true, Ok(runtime)) = (self.is_coming, Handle::try_current()) {
            let body = std::mem::take(&mut self.body);
            runtime.spawn(tokio::time::timeout(LEFTOVER_TIME_MAX, swallow(body)));
        }
    }
}

async fn swallow(mut body: Body) {
    let mut bytes = 0;
    while bytes <= LEFTOVER_BYTES_MAX {
        let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let Some(Ok(frame)) = frame else { return };
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.is_over = !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
