//! The server half: the lifecycle API under `/v1`.
//!
//! Handlers unpack, call [`Control`](atoll_control::Control) and wrap. What a client may see of a
//! sandbox is decided in `render.rs`, what it may ask for in `wire.rs` (schema, 422) and
//! `convert.rs` (meaning, 400), and every code of the contract stands in `error.rs`.

mod auth;
mod convert;
mod data_path;
mod diagnostics;
mod egress;
mod endpoints;
mod error;
mod extract;
mod form;
mod read;
mod refused;
mod render;
mod sandboxes;
mod signed;
mod snapshots;
mod state;
mod time;
mod wire;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, delete, get, patch, post};

pub use data_path::ingress;
pub use error::ApiError;
pub use render::{sandbox as sandbox_json, timeline as timeline_json};
pub use signed::RouteSigner;
pub use state::{DoorConfig, DoorState};

/// Largest body of a lifecycle request; data-path bodies stream and are not limited.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// The door, to be merged into the server's router. All its paths begin with `/v1`.
pub fn router(state: DoorState) -> Router {
    let api = api()
        .fallback(error::no_route)
        .method_not_allowed_fallback(error::wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(state.clone(), auth::require_key));
    let door = api.merge(data_paths()).with_state(state);
    Router::new().nest("/v1", door)
}

fn api() -> Router<DoorState> {
    Router::new()
        .route("/sandboxes", post(sandboxes::create).get(sandboxes::list))
        .route("/sandboxes/{id}", get(sandboxes::show).delete(sandboxes::kill))
        .route("/sandboxes/{id}/metadata", patch(sandboxes::patch_metadata))
        .route("/sandboxes/{id}/pause", post(sandboxes::pause))
        .route("/sandboxes/{id}/resume", post(sandboxes::resume))
        .route("/sandboxes/{id}/renew-expiration", post(sandboxes::renew))
        .route("/sandboxes/{id}/endpoints/{port}", get(endpoints::show))
        .route("/sandboxes/{id}/snapshots", post(snapshots::create))
        .route(
            "/sandboxes/{id}/networkpolicy",
            get(egress::show_policy)
                .put(egress::refuse_policy)
                .patch(egress::refuse_policy)
                .delete(egress::refuse_policy),
        )
        .route("/sandboxes/{id}/diagnostics/logs", get(diagnostics::logs))
        .route("/sandboxes/{id}/diagnostics/events", get(diagnostics::events))
        .route("/sandboxes/{id}/diagnostics/inspect", get(diagnostics::inspect))
        .route("/sandboxes/{id}/diagnostics/summary", get(diagnostics::summary))
        .route("/snapshots", get(snapshots::list))
        .route("/snapshots/{id}", get(snapshots::show).delete(snapshots::remove))
        .route("/templates", post(refused::template).get(refused::template))
        .route("/templates/{id}", get(refused::template).merge(delete(refused::template)))
        .route("/pools", post(refused::pool).get(refused::pool))
        .route("/pools/{id}", get(refused::pool).put(refused::pool).delete(refused::pool))
        .route("/metrics/events", post(refused::metrics_event))
}

/// Routes that carry requests into sandboxes; each checks its own kind of permission.
fn data_paths() -> Router<DoorState> {
    let mut router = Router::new();
    for rest in ["", "/", "/{*rest}"] {
        router = router
            .route(&format!("/sandboxes/{{id}}/proxy/{{port}}{rest}"), any(data_path::by_key))
            .route(&format!("/route/{{grant}}/{{port}}{rest}"), any(data_path::by_token))
            .route(&format!("/signed/{{token}}/{{port}}{rest}"), any(data_path::by_signature));
    }
    router
}

#[cfg(test)]
mod tests;
