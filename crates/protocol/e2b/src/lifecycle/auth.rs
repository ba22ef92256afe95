//! Who asks.

use atoll_core::{Result, TenantId};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;

use super::error::ApiError;
use super::state::DoorState;

const API_KEY: &str = "x-api-key";
const API_KEY_SHOWN: &str = "X-API-KEY";

/// The key of a request: in the SDKs' header, or as a bearer, where command lines put it.
pub(crate) fn key(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    text(API_KEY).or_else(|| bearer(headers))
}

/// The bearer's token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn tenant(door: &DoorState, headers: &HeaderMap) -> Result<TenantId> {
    door.keys.tenant(key(headers), API_KEY_SHOWN)
}

/// Lets only requests with a known key pass, and tells handlers whose it is.
pub(crate) async fn require_key(
    State(door): State<DoorState>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let tenant = tenant(&door, request.headers())?;
    request.extensions_mut().insert(tenant);
    Ok(next.run(request).await)
}
