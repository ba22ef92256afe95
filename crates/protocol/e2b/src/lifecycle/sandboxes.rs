//! One sandbox: show, change, end.

use std::sync::Arc;
use std::time::Duration;

use atoll_core::{Deadline, Phase, Sandbox, SandboxId, TenantId};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::error::ApiError;
use super::extract::{Body, PathSandbox, no_sandbox};
use super::read::Object;
use super::state::DoorState;
use super::{convert, marks, render, wire};

/// Shortest and longest extension by `refreshes`, in seconds.
const REFRESH_MIN: i64 = 15;
const REFRESH_MAX: i64 = 3600;

pub(super) type Answer<T> = Result<T, ApiError>;

/// One sandbox of a tenant that clients can see.
pub(super) async fn find(
    door: &DoorState,
    tenant: &TenantId,
    id: &SandboxId,
) -> Answer<Arc<Sandbox>> {
    let sandbox = door.control.get(tenant, id).await.map_err(|_| no_sandbox(id.as_str()))?;
    match render::state(sandbox.life.phase()) {
        Some(_) => Ok(sandbox),
        None => Err(no_sandbox(id.as_str())),
    }
}

/// `GET /sandboxes/{id}`.
pub(super) async fn show(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    headers: HeaderMap,
) -> Answer<Json<Value>> {
    let sandbox = find(&door, &tenant, &id).await?;
    let state = render::state(sandbox.life.phase()).ok_or_else(|| no_sandbox(id.as_str()))?;
    let domain = render::domain(&door.config, &headers);
    Ok(Json(render::detail(&door.config, &sandbox, state, domain.as_deref())))
}

/// `DELETE /sandboxes/{id}`; also of one that failed and was kept to be looked at.
pub(super) async fn kill(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
) -> Answer<StatusCode> {
    door.control.kill(&tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /sandboxes/{id}/timeout`.
pub(super) async fn timeout(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    body: Body,
) -> Answer<StatusCode> {
    let body = body.required()?;
    let seconds = Object::body(&body)?.integer("timeout")?;
    let seconds = seconds.ok_or_else(|| ApiError::invalid("timeout", "is required"))?;
    let lifetime = match seconds {
        ..=0 => Duration::ZERO,
        seconds => convert::timeout(&door.config, seconds)?,
    };
    let sandbox = running(&door, &tenant, &id).await?;
    let deadline = deadline(&door, &sandbox, lifetime);
    door.control.set_deadline(&tenant, &id, Some(deadline)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /sandboxes/{id}/refreshes`.
pub(super) async fn refresh(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    body: Body,
) -> Answer<StatusCode> {
    let body = body.or_empty();
    let seconds = Object::body(&body)?.integer("duration")?.unwrap_or(REFRESH_MIN);
    if seconds > REFRESH_MAX {
        let problem = format!("must be at most {REFRESH_MAX} seconds");
        return Err(ApiError::invalid("duration", problem));
    }
    let lifetime = convert::timeout(&door.config, seconds.max(REFRESH_MIN))?;
    let sandbox = running(&door, &tenant, &id).await?;
    door.control.extend(&tenant, &id, deadline(&door, &sandbox, lifetime)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn running(door: &DoorState, tenant: &TenantId, id: &SandboxId) -> Answer<Arc<Sandbox>> {
    let sandbox = find(door, tenant, id).await?;
    if sandbox.life.phase() == Phase::Running {
        return Ok(sandbox);
    }
    Err(ApiError::conflict(format!("sandbox {id} is paused; connect to it first")))
}

/// The end of a sandbox that has `lifetime` left.
pub(super) fn deadline(door: &DoorState, sandbox: &Sandbox, lifetime: Duration) -> Deadline {
    let at = (door.now)().saturating_add(lifetime);
    Deadline { at, then: marks::on_timeout(sandbox).expiry() }
}

/// `PUT /sandboxes/{id}/network`.
pub(super) async fn network(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    body: Body,
) -> Answer<StatusCode> {
    let wanted = wire::Network::read_update(&body.or_empty())?;
    let sandbox = find(&door, &tenant, &id).await?;
    convert::network::check_update(&door.config, sandbox.spec.network, &wanted)?;
    Ok(StatusCode::NO_CONTENT)
}
