use atoll_guest::{
    ring::{self, Ring},
    sys,
};
use axum::{
    Router,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Deserialize;
use std::{fs::File, io, os::fd::OwnedFd, sync::Arc};

/// What is kept when the launcher passes no ring of its own.
const RING_BYTES: u64 = 256 * 1024;

/// The entrypoint's log: the launcher's ring, or one that only this process knows.
pub(crate) fn open(inherited: Option<OwnedFd>) -> io::Result<Arc<Ring>> {
    let ring = match inherited {
        Some(fd) => Ring::adopt(File::from(fd)),
        None => Ring::create(sys::memory_file()?, RING_BYTES),
    };
    ring.map(Arc::new)
}

/// Adds a line of the agent's own. A log that cannot be written must not stop the sandbox.
pub(crate) fn note(ring: &Ring, message: &str) {
    ring.append(format!("atoll-agent: {message}\n").as_bytes()).ok();
}

#[derive(Deserialize)]
struct Window {
    tail: Option<usize>,
}

/// `GET /atoll/logs?tail=N`: the entrypoint's last lines.
pub(crate) fn router(ring: Arc<Ring>) -> Router {
    Router::new().route("/atoll/logs", get(show)).with_state(ring)
}

async fn show(State(ring): State<Arc<Ring>>, Query(window): Query<Window>) -> Response {
    let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    match ring.since(0) {
        Ok((bytes, _)) => {
            let shown = window.tail.map_or(&bytes[..], |count| ring::last_lines(&bytes, count));
            (plain, shown.to_vec()).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, plain, error.to_string()).into_response(),
    }
}
