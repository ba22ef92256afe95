//! Serving for development, without being anybody's first process.

use crate::logs;
use anyhow::{Context, Result};
use atoll_guest::{Guest, Options, Role};
use axum::{Router, serve::ListenerExt};
use std::io::Write;
use tokio::net::{TcpListener, UnixListener};

fn app() -> Result<Router> {
    let options = Options { env: std::env::vars().collect(), ..Options::default() };
    let guest = Guest::new(Role::Guest, options)?;
    Ok(atoll_opensandbox::guest::router(guest).merge(logs::router(logs::open(None)?)))
}

fn announce(place: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{place}").context("cannot print the address")
}

/// Serves on a TCP address, port 0 for any.
pub(crate) async fn on_address(address: &str) -> Result<u8> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    announce(&listener.local_addr()?.to_string())?;
    // Without this the last small frame of a stream may wait for an acknowledgement.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, app()?).await?;
    Ok(0)
}

/// Serves on a Unix socket.
pub(crate) async fn on_path(path: &str) -> Result<u8> {
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen on {path}"))?;
    announce(path)?;
    axum::serve(listener, app()?).await?;
    Ok(0)
}
