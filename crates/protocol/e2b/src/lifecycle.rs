//! The server half: the control API, and the data path into sandboxes.
//!
//! Handlers unpack, call [`Control`](atoll_control::Control) and wrap. What a client may ask for
//! is read in `wire.rs` and understood in `convert.rs`, what it sees is decided in `render.rs`,
//! and what this door keeps with a sandbox stands in `marks.rs`.

mod auth;
mod convert;
mod create;
mod cursor;
mod data_path;
mod directory;
mod error;
mod extract;
mod form;
mod idempotency;
mod list;
mod marks;
mod observe;
mod pausing;
mod read;
mod render;
mod sandboxes;
mod secrets;
mod snapshots;
mod state;
mod teams;
mod templates;
mod time;
mod token;
mod turns;
mod volume_content;
mod volumes;
mod wire;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post, put};

pub use data_path::{is_data_path, layer as data_path};
pub use directory::Directory;
pub use error::{ApiError, no_route, wrong_method};
pub use state::{DoorConfig, DoorState};
pub use templates::template_router;
pub use turns::Turns;

/// Largest body of a control request; data-path bodies stream and are not limited.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The control API, to be merged into the server's router; all of it stands a second time below
/// `/kruise/api`. `GET /health` and fallbacks at the root belong to the server.
pub fn router(state: DoorState) -> Router {
    let api = api()
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .route_layer(from_fn_with_state(state.clone(), auth::require_key))
        .merge(content())
        .method_not_allowed_fallback(wrong_method);
    let below =
        api.clone().route("/health", get(|| async { StatusCode::NO_CONTENT })).fallback(no_route);
    Router::new().nest("/kruise/api", below).merge(api).with_state(state)
}

fn api() -> Router<DoorState> {
    sandbox_routes()
        .route("/snapshots", get(snapshots::list))
        .route("/volumes", post(volumes::create).get(volumes::list))
        .route("/volumes/{id}", get(volumes::show).delete(volumes::remove))
        .route("/secrets", post(secrets::create).get(secrets::list))
        .route("/secrets/{id}", get(secrets::show).post(secrets::update).delete(secrets::remove))
        .route("/teams", get(teams::list))
        .route("/teams/{id}/metrics", get(teams::refuse_metrics))
        .route("/teams/{id}/metrics/max", get(teams::refuse_metrics))
        .route("/api-keys", get(teams::keys).post(teams::refuse_keys))
        .route("/api-keys/{id}", delete(teams::refuse_keys).patch(teams::refuse_keys))
        .route("/access-tokens", post(teams::refuse_access_tokens))
        .route("/access-tokens/{id}", delete(teams::refuse_keys))
}

fn sandbox_routes() -> Router<DoorState> {
    Router::new()
        .route("/sandboxes", post(create::create_v1).get(list::list_v1))
        .route("/v2/sandboxes", post(create::create_v2).get(list::list))
        .route("/sandboxes/metrics", get(observe::metrics_of_many))
        .route("/sandboxes/{id}", get(sandboxes::show).delete(sandboxes::kill))
        .route("/sandboxes/{id}/timeout", post(sandboxes::timeout))
        .route("/sandboxes/{id}/refreshes", post(sandboxes::refresh))
        .route("/sandboxes/{id}/pause", post(pausing::pause))
        .route("/sandboxes/{id}/resume", post(pausing::resume))
        .route("/sandboxes/{id}/connect", post(pausing::connect_v1))
        .route("/v2/sandboxes/{id}/connect", post(pausing::connect_v2))
        .route("/sandboxes/{id}/fork", post(snapshots::fork))
        .route("/sandboxes/{id}/snapshots", post(snapshots::create))
        .route("/sandboxes/{id}/network", put(sandboxes::network))
        .route("/sandboxes/{id}/metrics", get(observe::metrics))
        .route("/sandboxes/{id}/logs", get(observe::logs_v1))
        .route("/v2/sandboxes/{id}/logs", get(observe::logs_v2))
}

/// What is in volumes; each request shows the volume's own token.
fn content() -> Router<DoorState> {
    let entry =
        get(volume_content::entry).patch(volume_content::change).delete(volume_content::remove);
    let directory = get(volume_content::entries).post(volume_content::make_directory);
    let file = get(volume_content::read).put(volume_content::write);
    Router::new()
        .route("/volumecontent/{id}/path", entry)
        .route("/volumecontent/{id}/dir", directory)
        .route("/volumecontent/{id}/file", file)
}

#[cfg(test)]
mod tests;
