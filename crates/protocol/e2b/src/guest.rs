//! Inside a sandbox: the envd API over [`atoll_guest`].
//!
//! Remote calls in the JSON of the Connect protocol, file content over plain HTTP. Tokens and
//! signatures are the server's business; here the header `Authorization` only selects a user.

mod caller;
mod connect;
mod edge;
mod files;
mod filesystem;
pub mod frame;
mod json;
pub mod path;
mod process;
mod rest;
mod sandbox;

use atoll_guest::Guest;
use axum::{Router, extract::Request, middleware};
use std::sync::Arc;
use tower::ServiceExt;

/// All routes of the envd API. Users, their home and the workdir are those of the guest's settings
/// at the moment of each request.
pub fn router(guest: Arc<Guest>) -> Router {
    let api = Router::new()
        .merge(sandbox::router())
        .merge(process::router())
        .merge(filesystem::router())
        .merge(files::router())
        .fallback(edge::no_route)
        .method_not_allowed_fallback(edge::no_method)
        .layer(middleware::from_fn(edge::allow_origins))
        .with_state(guest);
    // Before any route is looked for.
    Router::new().fallback(async move |mut request: Request| {
        if let Some(tidy) = edge::tidy_slashes(request.uri()) {
            *request.uri_mut() = tidy;
        }
        api.clone().oneshot(request).await
    })
}
