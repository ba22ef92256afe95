//! Accepts connections, bounds them, and ends them in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::ServiceExt as _;

/// Largest head of a request.
const HEAD_BYTES_MAX: usize = 128 * 1024;
/// Most headers of a request.
const HEADERS_MAX: usize = 100;
/// After a failed accept (no descriptors left, say) some time must pass for things to get better.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) connections_max: usize,
    pub(crate) header_time_max: Duration,
    pub(crate) drain_time_max: Duration,
}

/// Held by a connection, and by the tunnel it turned into.
#[derive(Clone)]
struct Place(#[allow(dead_code, reason = "held for its drop")] Arc<OwnedSemaphorePermit>);

/// Serves `router` until `stop`, then lets requests finish for a bounded time.
pub(crate) async fn run(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(bounds.connections_max));
    let (draining, drain) = watch::channel(false);
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = accept(&listener, places.clone()) => accepted,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                let connection =
                    connection(stream, peer, place, router.clone(), bounds, drain.clone());
                tokio::spawn(connection);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    draining.send_replace(true);
    let all = u32::try_from(bounds.connections_max).unwrap_or(u32::MAX);
    if tokio::time::timeout(bounds.drain_time_max, places.acquire_many(all)).await.is_err() {
        tracing::info!("some connections did not end in time and are cut off");
    }
}

async fn accept(
    listener: &TcpListener,
    places: Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, Place)> {
    let permit = places.acquire_owned().await.expect("the semaphore is never closed");
    let (stream, peer) = listener.accept().await?;
    // Answers are often small and always awaited.
    stream.set_nodelay(true)?;
    Ok((stream, peer, Place(Arc::new(permit))))
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    place: Place,
    router: Router,
    bounds: Bounds,
    mut drain: watch::Receiver<bool>,
) {
    let service = router.map_request(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(place.clone());
        request
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_time_max)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .with_upgrades();
    tokio::pin!(connection);
    // How a client's connection ends is the client's business.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = drain.wait_for(|draining| *draining) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

#[cfg(test)]
mod tests;
