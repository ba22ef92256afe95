//! The half that runs inside a sandbox: the execd API over [`atoll_guest`].

mod code;
mod commands;
mod directories;
mod download;
mod error;
mod events;
mod extract;
mod files;
mod lines;
mod metrics;
mod proxy;
mod sessions;
mod terminals;
mod unsupported;
mod upload;
mod wire;

pub use code::stand_in_for_jupyter;

use atoll_guest::Guest;
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderName, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{any, delete, get, post},
};
use std::sync::Arc;

/// The header in which callers present the access token, where one is set.
pub const ACCESS_TOKEN_HEADER: &str = "x-execd-access-token";
/// The header by which `/ping` tells which generation of the agent answers.
pub const GENERATION_HEADER: &str = "atoll-agent-generation";
/// The generation of this agent; a running sandbox keeps the agent it was started with.
pub const GENERATION: &str = "1";

/// All routes of the execd API.
pub fn router(guest: Arc<Guest>) -> Router {
    let api = Router::new()
        .route("/ping", get(ping))
        .route("/command", post(commands::run).delete(commands::interrupt))
        .route("/command/status/{id}", get(commands::status))
        .route("/command/{id}/logs", get(commands::logs))
        .route("/session", post(sessions::open))
        .route("/session/{id}/run", post(sessions::run))
        .route("/session/{id}", delete(sessions::close))
        .route("/metrics", get(metrics::now))
        .route("/metrics/watch", get(metrics::watch))
        .route("/pty", post(terminals::open))
        .route("/pty/{id}", get(terminals::condition).delete(terminals::close))
        .route("/pty/{id}/ws", get(terminals::attach))
        .merge(code::router())
        .merge(filesystem())
        .nest("/v1/filesystem/{uid}/{gid}", filesystem())
        .merge(unsupported::router())
        .fallback(unsupported::no_route)
        .with_state(Arc::clone(&guest));
    let proxied = api.clone();
    api.route("/proxy/{port}", any(proxy::forward).with_state(proxied.clone()))
        .route("/proxy/{port}/{*path}", any(proxy::forward).with_state(proxied.clone()))
        .route("/proxy/{port}/", any(proxy::forward).with_state(proxied))
        .layer(middleware::from_fn_with_state(guest, check_token))
}

/// The eleven routes that exist twice: as the agent, and as a user id and group id.
fn filesystem() -> Router<Arc<Guest>> {
    Router::new()
        .route("/files/info", get(files::info))
        .route("/files", delete(files::remove))
        .route("/files/mv", post(files::rename))
        .route("/files/permissions", post(files::permissions))
        .route("/files/search", get(files::search))
        .route("/files/replace", post(files::replace))
        .route("/files/upload", post(upload::upload))
        .route("/files/download", get(download::download))
        .route("/directories/list", get(directories::list))
        .route("/directories", post(directories::make).delete(directories::remove))
}

async fn ping() -> Response {
    ([(HeaderName::from_static(GENERATION_HEADER), GENERATION)], ()).into_response()
}

/// Refuses callers without the token, if one is set. `/ping` stays open: it tells nothing, and
/// whoever waits for readiness may not hold the token.
async fn check_token(State(guest): State<Arc<Guest>>, request: Request, next: Next) -> Response {
    let Some(wanted) = guest.access_token() else { return next.run(request).await };
    let given = request.headers().get(ACCESS_TOKEN_HEADER).map(|value| value.as_bytes());
    let allowed = given.is_some_and(|given| same(given, wanted.as_bytes()));
    if allowed || request.uri().path() == "/ping" {
        return next.run(request).await;
    }
    let body = r#"{"error":"Unauthorized: the header X-EXECD-ACCESS-TOKEN is missing or wrong"}"#;
    (StatusCode::UNAUTHORIZED, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Compares secrets in a time that depends on their lengths only.
fn same(given: &[u8], wanted: &[u8]) -> bool {
    let differences = given.iter().zip(wanted).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == wanted.len() && differences == 0
}
