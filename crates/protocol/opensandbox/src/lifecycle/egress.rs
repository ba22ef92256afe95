//! Egress rules: shown as they are (everything is allowed, or nothing where the operator gives
//! sandboxes no way out), and never taken, since nothing here would enforce them.

use atoll_control::Access;
use atoll_core::{ErrorKind, SandboxId, TenantId};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::error::{ApiError, Doing};
use super::extract::PathSandbox;
use super::sandboxes::{find, sort};
use super::state::DoorState;

const REFUSAL: &str = "this version does not enforce egress rules, so it refuses to take them";

fn policy(door: &DoorState) -> Value {
    let (mode, enforcement, reason, action) = if door.config.internet {
        ("allow_all", "dns", "egress rules are not enforced by this server", "allow")
    } else {
        ("deny_all", "dns+nft", "sandboxes have no way out of this server", "deny")
    };
    json!({
        "status": "ok",
        "mode": mode,
        "enforcementMode": enforcement,
        "reason": reason,
        "policy": {"defaultAction": action, "egress": []},
    })
}

/// `GET /sandboxes/{id}/networkpolicy`.
pub(super) async fn show_policy(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
) -> Result<Json<Value>, ApiError> {
    find(&door, &tenant, &id).await?;
    Ok(Json(policy(&door)))
}

/// Every change to a policy.
pub(super) async fn refuse_policy(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
) -> Result<(), ApiError> {
    find(&door, &tenant, &id).await?;
    Err(ApiError::unsupported("networkPolicy", REFUSAL))
}

/// The sidecar that clients expect on a port of the sandbox; its errors are plain text.
pub(super) async fn face(
    door: &DoorState,
    access: &Access,
    id: &SandboxId,
    method: &Method,
    path: &str,
) -> Result<Response, ApiError> {
    check(door, access, id).await?;
    let answer = match (method, path) {
        (&Method::GET, "/policy") => Json(policy(door)).into_response(),
        (&Method::POST | &Method::PUT | &Method::PATCH | &Method::DELETE, "/policy") => {
            text(StatusCode::NOT_IMPLEMENTED, REFUSAL)
        }
        (&Method::GET, "/healthz") => text(StatusCode::OK, "ok"),
        (_, "/policy" | "/healthz") => text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
        _ => text(StatusCode::NOT_FOUND, "not found: only /policy and /healthz are answered here"),
    };
    Ok(answer)
}

/// The caller may know of this sandbox, whatever state it is in.
async fn check(door: &DoorState, access: &Access, id: &SandboxId) -> Result<(), ApiError> {
    match door.control.check(access, id).await {
        Err(error) if error.kind() == ErrorKind::NotFound => sort(Doing::Read, Err(error)),
        // Paused or starting: the caller was recognised, which is all that is asked here.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn text(status: StatusCode, text: &'static str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}
