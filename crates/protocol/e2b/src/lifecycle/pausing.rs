//! Pauses, and what ends them.

use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Access, Port};
use atoll_core::{Aging, Deadline, ErrorKind, Expiry, Keep, Phase, Sandbox, SandboxId, TenantId};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use super::convert::{self, kruise};
use super::error::ApiError;
use super::extract::{Body, PathSandbox, no_sandbox};
use super::marks::{self, Marks, OnTimeout};
use super::render;
use super::sandboxes::{Answer, deadline, find};
use super::state::DoorState;
use super::wire::{self, Continue, Version};

/// Resumptions and connections of old, when they don't say.
const TIMEOUT_V1: i64 = 15;
const TIMEOUT_V2: i64 = 300;
/// Rounds of "look, wait" until a sandbox that others change at the same time is as wished.
const ROUNDS_MAX: usize = 8;
/// Longest wait for an agent that is asked whether it answers.
const HEALTH_TIME_MAX: Duration = Duration::from_secs(2);
const KEEP_PAUSED_HEADER: &str = "x-e2b-kruise-reserve-paused-sandbox-duration";

/// `POST /sandboxes/{id}/pause`. Answers when it stands still.
pub(super) async fn pause(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    headers: HeaderMap,
    body: Body,
) -> Answer<StatusCode> {
    let wanted = wire::Pause::read(&body.or_empty())?;
    let header = headers.get(KEEP_PAUSED_HEADER).and_then(|value| value.to_str().ok());
    let kept = header.map(|text| kruise::keep_paused(KEEP_PAUSED_HEADER, text)).transpose()?;
    let sandbox = find(&door, &tenant, &id).await?;
    if wanted.require_healthy_guest || !wanted.memory {
        check_guest(&door, &tenant, &sandbox).await?;
    }
    let keep = if wanted.memory { Keep::Memory } else { Keep::Files };
    // What is paused doesn't age: it stays until it is resumed or killed, or as long as was said.
    let kept = kept.unwrap_or(Marks::of(&sandbox).keep_paused);
    let until = kept.map(|duration| (door.now)().saturating_add(duration));
    let aging = Aging::Stops(until.map(|at| Deadline { at, then: Expiry::Kill }));
    door.control.pause(&tenant, &id, keep, aging).await?;
    let sandbox = door.control.wait(&tenant, &id, door.config.create_wait).await?;
    if sandbox.life.phase() != Phase::Paused {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(ApiError::not_done(&sandbox, status, "paused").not_again());
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn check_guest(door: &DoorState, tenant: &TenantId, sandbox: &Sandbox) -> Answer<()> {
    if sandbox.life.phase() != Phase::Running {
        return Ok(());
    }
    let access = Access::Tenant(tenant.clone());
    let connecting = door.control.connect(&access, &sandbox.id, Port::Agent);
    match tokio::time::timeout(HEALTH_TIME_MAX, connecting).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the agent of sandbox {} does not answer, so it was not paused", sandbox.id),
        )),
    }
}

/// `POST /sandboxes/{id}/resume`, of old.
pub(super) async fn resume(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let wanted = Continue::read(&body.or_empty())?;
    let lifetime = convert::timeout(&door.config, wanted.timeout_seconds.unwrap_or(TIMEOUT_V1))?;
    let sandbox = find(&door, &tenant, &id).await?;
    if sandbox.life.phase() == Phase::Running {
        return Err(ApiError::conflict(format!("sandbox {id} is already running")));
    }
    if wanted.auto_pause.is_some_and(|wish| wish != is_paused_by_timeout(&sandbox)) {
        let reason = "what happens at the timeout is settled when a sandbox is created";
        return Err(ApiError::unsupported("autoPause", reason));
    }
    let (sandbox, _) = connect_for(&door, &tenant, &id, lifetime, wanted.memory).await?;
    Ok(answer(&door, &headers, &sandbox, StatusCode::CREATED))
}

fn is_paused_by_timeout(sandbox: &Sandbox) -> bool {
    matches!(marks::on_timeout(sandbox), OnTimeout::Pause(_))
}

/// `POST /sandboxes/{id}/connect`.
pub(super) async fn connect_v1(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    connect(&door, &tenant, &id, &headers, body, Version::V1).await
}

/// `POST /v2/sandboxes/{id}/connect`.
pub(super) async fn connect_v2(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    connect(&door, &tenant, &id, &headers, body, Version::V2).await
}

async fn connect(
    door: &DoorState,
    tenant: &TenantId,
    id: &SandboxId,
    headers: &HeaderMap,
    body: Body,
    version: Version,
) -> Answer<Response> {
    let wanted = Continue::read(&body.or_empty())?;
    let seconds = match (wanted.timeout_seconds, version) {
        (Some(seconds), _) => seconds,
        (None, Version::V2) => TIMEOUT_V2,
        (None, Version::V1) => return Err(ApiError::invalid("timeout", "is required")),
    };
    let lifetime = convert::timeout(&door.config, seconds)?;
    let (sandbox, resumed) = connect_for(door, tenant, id, lifetime, wanted.memory).await?;
    let status = if resumed { StatusCode::CREATED } else { StatusCode::OK };
    Ok(answer(door, headers, &sandbox, status))
}

fn answer(
    door: &DoorState,
    headers: &HeaderMap,
    sandbox: &Sandbox,
    status: StatusCode,
) -> Response {
    let domain = render::domain(&door.config, headers);
    (status, Json(render::sandbox(sandbox, domain.as_deref()))).into_response()
}

/// The sandbox, running and with at least `lifetime` to live, and whether it was paused before.
/// Others may change it at the same time, so this looks again after every step; each step leaves a
/// sandbox that is paused or has an end, so that the client may go away between any two.
async fn connect_for(
    door: &DoorState,
    tenant: &TenantId,
    id: &SandboxId,
    lifetime: Duration,
    memory: Option<bool>,
) -> Answer<(Arc<Sandbox>, bool)> {
    let mut resumed = false;
    for _ in 0..ROUNDS_MAX {
        let sandbox = door.control.get(tenant, id).await.map_err(|_| no_sandbox(id.as_str()))?;
        match sandbox.life.phase() {
            Phase::Running => {
                let sandbox = prolong(door, tenant, &sandbox, lifetime).await?;
                return Ok((sandbox, resumed));
            }
            Phase::Paused => {
                resumed = true;
                wake(door, tenant, &sandbox, lifetime).await?;
                if memory == Some(false) && sandbox.life.keep() == Keep::Memory {
                    forget_memory(door, tenant, id).await?;
                    continue;
                }
            }
            Phase::Queued | Phase::Starting | Phase::Pausing | Phase::Resuming => {}
            Phase::Failed if resumed => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                return Err(ApiError::not_done(&sandbox, status, "resumed"));
            }
            Phase::Stopping | Phase::Ended | Phase::Failed | Phase::Gone => {
                return Err(no_sandbox(id.as_str()));
            }
        }
        door.control.wait(tenant, id, door.config.create_wait).await?;
    }
    Err(ApiError::conflict(format!("sandbox {id} keeps changing its state; try again")))
}

/// What was made without an end keeps none, unless it was given one later.
fn has_end(sandbox: &Sandbox) -> bool {
    let life = &sandbox.life;
    match Marks::of(sandbox).on_timeout {
        Some(OnTimeout::Kill | OnTimeout::Pause(_)) => true,
        Some(OnTimeout::Never) | None => life.lifetime().is_some(),
    }
}

async fn wake(
    door: &DoorState,
    tenant: &TenantId,
    sandbox: &Sandbox,
    lifetime: Duration,
) -> Answer<()> {
    let until = has_end(sandbox).then(|| deadline(door, sandbox, lifetime));
    match door.control.resume(tenant, &sandbox.id, until).await {
        Ok(_) => Ok(()),
        // Somebody else has begun just now.
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Ends all processes of a sandbox that was just woken: it is paused again without its memory,
/// and starts anew from its files.
async fn forget_memory(door: &DoorState, tenant: &TenantId, id: &SandboxId) -> Answer<()> {
    let patience = door.config.create_wait;
    door.control.wait(tenant, id, patience).await?;
    door.control.pause(tenant, id, Keep::Files, Aging::Stops(None)).await?;
    let sandbox = door.control.wait(tenant, id, patience).await?;
    if sandbox.life.phase() == Phase::Paused {
        return Ok(());
    }
    let status = StatusCode::SERVICE_UNAVAILABLE;
    Err(ApiError::not_done(&sandbox, status, "started anew").not_again())
}

/// Never shortens a life.
async fn prolong(
    door: &DoorState,
    tenant: &TenantId,
    sandbox: &Arc<Sandbox>,
    lifetime: Duration,
) -> Answer<Arc<Sandbox>> {
    if !has_end(sandbox) {
        return Ok(sandbox.clone());
    }
    let later = deadline(door, sandbox, lifetime);
    let _turn = door.turns.deadlines().lock().await;
    let sandbox = door.control.get(tenant, &sandbox.id).await?;
    Ok(match sandbox.life.deadline() {
        None if sandbox.life.phase() == Phase::Running => {
            door.control.set_deadline(tenant, &sandbox.id, Some(later)).await?
        }
        _ => door.control.extend(tenant, &sandbox.id, later).await?,
    })
}
