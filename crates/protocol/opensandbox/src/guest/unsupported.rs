//! Parts of the contract that this sandbox does not offer, refused in the contract's own words.

use super::error::{Code, Failure};
use atoll_guest::Guest;
use axum::{
    Json, Router,
    http::{Method, StatusCode, Uri},
    routing::{any, get},
};
use serde::Serialize;
use std::sync::Arc;

const NO_ISOLATION: &str =
    "isolated sessions are not part of this sandbox; make another sandbox for more isolation";

#[derive(Serialize)]
struct Capabilities {
    available: bool,
    message: &'static str,
    setpriv_available: bool,
    userns_available: bool,
    commit_supported: bool,
    diff_supported: bool,
}

pub(super) fn router() -> Router<Arc<Guest>> {
    Router::new()
        .route("/v1/isolated/capabilities", get(capabilities))
        .route("/v1/isolated/{*rest}", any(isolation))
}

async fn capabilities() -> Json<Capabilities> {
    Json(Capabilities {
        available: false,
        message: NO_ISOLATION,
        setpriv_available: false,
        userns_available: false,
        commit_supported: false,
        diff_supported: false,
    })
}

async fn isolation() -> Failure {
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, Code::NotSupported, NO_ISOLATION)
}

pub(super) async fn no_route(method: Method, uri: Uri) -> Failure {
    let message = format!("there is no {method} {}", uri.path());
    Failure::new(StatusCode::NOT_FOUND, Code::Unknown, message)
}
