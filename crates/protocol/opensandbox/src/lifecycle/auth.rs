//! Who asks.

use atoll_core::{Result, TenantId};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::Response;

use super::error::{ApiError, Doing};
use super::state::DoorState;

/// Carries an API key.
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("open-sandbox-api-key");
/// The same, as the contract's documents spell it.
const API_KEY_SHOWN: &str = "OPEN-SANDBOX-API-KEY";
/// Carries one sandbox's access token.
pub(crate) const SECURE_ACCESS: HeaderName = HeaderName::from_static("opensandbox-secure-access");
/// Carries the same token, from clients that know only the in-sandbox API's own header.
pub(crate) const EXECD_TOKEN: HeaderName = HeaderName::from_static("x-execd-access-token");

/// The tenant that a request's API key belongs to.
pub(crate) fn tenant(door: &DoorState, headers: &HeaderMap) -> Result<TenantId> {
    let key = headers.get(API_KEY).and_then(|value| value.to_str().ok());
    door.keys.tenant(key, API_KEY_SHOWN)
}

/// Lets only requests with a known key pass, and tells handlers whose it is.
pub(crate) async fn require_key(
    State(door): State<DoorState>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let tenant = tenant(&door, request.headers())
        .map_err(|error| ApiError::from_control(Doing::Read, &error))?;
    request.extensions_mut().insert(tenant);
    Ok(next.run(request).await)
}
