use super::wire::Line;
use atoll_guest::kernel::Event;
use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use std::{convert::Infallible, time::Duration};
use tokio::{sync::mpsc, time::timeout};

/// A write every so often makes a client that went away known.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);

/// Answers with one line of JSON per event as they come. When the client goes away this is
/// dropped, and the code is interrupted.
pub(super) fn response(events: mpsc::Receiver<Event>) -> Response {
    let lines = stream::unfold(Some(events), |events| async move {
        let mut events = events?;
        let (line, rest) = match timeout(KEEPALIVE_EVERY, events.recv()).await {
            Err(_) => (Line::Keepalive, Some(events)),
            Ok(Some(event)) => (Line::from(event), Some(events)),
            Ok(None) => (Line::EndOfExecution, None),
        };
        Some((Ok::<Bytes, Infallible>(line.render()), rest))
    });
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(lines)).into_response()
}
