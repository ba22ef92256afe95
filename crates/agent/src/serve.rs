//! What is served, and serving for development, without being anybody's first process.

use crate::logs;
use anyhow::{Context, Result};
use atoll_guest::{Guest, Options, Role, ring::Ring};
use axum::{Router, serve::ListenerExt};
use std::{io::Write, sync::Arc};
use tokio::net::{TcpListener, UnixListener};

/// Where clients of the code interpreter connect to.
const INTERPRETER_PORT: u16 = 49_999;

/// Everything that is served, however the agent was started.
pub(crate) fn routes(guest: &Arc<Guest>, log: &Arc<Ring>) -> Router {
    let interpreter = atoll_e2b::interpreter::router(Arc::clone(guest));
    if guest.kernels().are_installed() {
        tokio::spawn(atoll_opensandbox::guest::stand_in_for_jupyter());
        tokio::spawn(inside(interpreter.clone()));
    }
    atoll_opensandbox::guest::router(Arc::clone(guest))
        .merge(logs::router(Arc::clone(log)))
        .nest_service("/envd", atoll_e2b::guest::router(Arc::clone(guest)))
        .nest_service("/code-interpreter", interpreter)
}

/// Serves the code interpreter to programs inside, which look for it where clients do. An image's
/// own server goes first.
async fn inside(interpreter: Router) {
    let here = (std::net::Ipv4Addr::LOCALHOST, INTERPRETER_PORT);
    let Ok(listener) = TcpListener::bind(here).await else { return };
    // It accepts until the sandbox ends.
    let _never = axum::serve(listener, interpreter).await;
}

fn app() -> Result<Router> {
    let options = Options { env: std::env::vars().collect(), ..Options::default() };
    let guest = Guest::new(Role::Guest, options)?;
    Ok(routes(&guest, &logs::open(None)?))
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
