//! A creation, from its body to a sandbox that works.

use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Create, Templates as _};
use atoll_core::{
    Deadline, ErrorKind, Expiry, MountSource, Phase, Sandbox, SandboxId, SandboxSpec, TenantId,
};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::convert::{self, Plan, Reserve};
use super::error::ApiError;
use super::extract::Body;
use super::idempotency::{self, Key};
use super::render;
use super::state::DoorState;
use super::wire::{NewSandbox, Version};

/// `POST /sandboxes`.
pub(super) async fn create_v1(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    create(&door, &tenant, &headers, body, Version::V1).await
}

/// `POST /v2/sandboxes`.
pub(super) async fn create_v2(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    create(&door, &tenant, &headers, body, Version::V2).await
}

async fn create(
    door: &DoorState,
    tenant: &TenantId,
    headers: &HeaderMap,
    body: Body,
    version: Version,
) -> Result<Response, ApiError> {
    let body = body.required()?;
    let key = Key::read(headers, &body, version)?;
    let made = match key {
        Some(key) => once(door, tenant, &body, version, &key).await,
        None => make(door, tenant, &body, version, None).await,
    };
    // By the time a creation fails it has waited long enough; an SDK must not begin again.
    let sandbox = made.map_err(|error| match error.status().as_u16() {
        429 | 500.. => error.not_again(),
        _ => error,
    })?;
    let domain = render::domain(&door.config, headers);
    let shown = render::sandbox(&sandbox, domain.as_deref());
    Ok((StatusCode::CREATED, Json(shown)).into_response())
}

/// The sandbox that was made with `key`, or a new one.
async fn once(
    door: &DoorState,
    tenant: &TenantId,
    body: &Value,
    version: Version,
    key: &Key,
) -> Result<Arc<Sandbox>, ApiError> {
    let _held = idempotency::hold(door, tenant, key)?;
    match idempotency::find(door, tenant, key).await? {
        Some(sandbox) => {
            // It may still be starting when the server was restarted in the middle of its making.
            let patience = convert::patience(door.config.create_wait, &sandbox.spec);
            usable(door.control.wait(tenant, &sandbox.id, patience).await?)
        }
        None => make(door, tenant, body, version, Some(key)).await,
    }
}

async fn make(
    door: &DoorState,
    tenant: &TenantId,
    body: &Value,
    version: Version,
    key: Option<&Key>,
) -> Result<Arc<Sandbox>, ApiError> {
    let new = NewSandbox::read(body, version)?;
    let unsupported = new.unsupported;
    let mut plan = convert::plan(&door.config, new, version)?;
    plan.marks.idempotency = key.map(Key::mark);
    check_volumes(door, tenant, &plan).await?;
    let (spec, pool) = template(door, tenant, &plan.template).await?;
    // Clients that want these ask for a template of that kind, and learn of its absence first.
    if let Some((field, reason)) = unsupported {
        return Err(ApiError::unsupported(field, reason));
    }
    let reserve = plan.options.reserve_failed;
    let patience = plan.options.ready_patience.unwrap_or(door.config.create_wait);
    let patience = convert::patience(patience, &spec);
    let wanted = plan.create(spec, pool);
    let sandbox = start(door, tenant, wanted, patience, reserve).await?;
    if let Some(origin) = &sandbox.spec.template {
        door.templates.spawned(&origin.id);
    }
    Ok(sandbox)
}

/// What a template's name means: a warm pool of that name first, then a template.
async fn template(
    door: &DoorState,
    tenant: &TenantId,
    name: &str,
) -> Result<(SandboxSpec, Option<String>), ApiError> {
    let pools = door.pools.pools().await;
    if let Some(status) = pools.iter().find(|status| status.pool.name == name) {
        let mut spec = status.pool.spec.clone();
        if let Some(origin) = &mut spec.template {
            origin.alias = Some(name.to_owned());
        }
        return Ok((spec, Some(name.to_owned())));
    }
    Ok((door.templates.resolve(tenant, name).await?, None))
}

async fn check_volumes(door: &DoorState, tenant: &TenantId, plan: &Plan) -> Result<(), ApiError> {
    for asked in &plan.mounts {
        if let MountSource::Volume { name, .. } = &asked.mount.source
            && let Err(error) = door.volumes.volume_by_name(tenant, name).await
        {
            if error.kind() != ErrorKind::NotFound {
                return Err(error.into());
            }
            let problem = format!("there is no volume named {name:?}; create it first");
            return Err(ApiError::invalid(&asked.field, problem));
        }
    }
    Ok(())
}

/// Makes a sandbox and waits until it works. One that doesn't come up is removed again, unless
/// the caller wants to look at it; so is one whose caller has gone.
async fn start(
    door: &DoorState,
    tenant: &TenantId,
    wanted: Create,
    patience: Duration,
    reserve: Reserve,
) -> Result<Arc<Sandbox>, ApiError> {
    if reserve == Reserve::Never {
        let made = door.control.create_and_wait(tenant, wanted, patience).await;
        return usable(made.map_err(ApiError::not_accepted)?);
    }
    let accepted = door.control.create(tenant, wanted).await.map_err(ApiError::not_accepted)?;
    let unfinished = Unfinished::new(door, tenant, &accepted.id);
    let sandbox = door.control.wait(tenant, &accepted.id, patience).await?;
    match sandbox.life.phase() {
        Phase::Failed | Phase::Ended => {
            unfinished.finish();
            keep_failed(door, tenant, &accepted.id, reserve).await;
        }
        // Nothing failed yet that could be looked at, and nobody would know of it later.
        Phase::Queued | Phase::Starting => drop(unfinished),
        Phase::Running
        | Phase::Pausing
        | Phase::Paused
        | Phase::Resuming
        | Phase::Stopping
        | Phase::Gone => unfinished.finish(),
    }
    usable(sandbox)
}

/// A sandbox that a client can use, or why it can't.
pub(super) fn usable(sandbox: Arc<Sandbox>) -> Result<Arc<Sandbox>, ApiError> {
    match sandbox.life.phase() {
        Phase::Running | Phase::Pausing | Phase::Paused | Phase::Resuming => Ok(sandbox),
        Phase::Queued | Phase::Starting => {
            let message = format!("sandbox {} did not start in time", sandbox.id);
            let error = ApiError::new(StatusCode::GATEWAY_TIMEOUT, message);
            Err(error.with_code("sandbox_placement_timeout"))
        }
        Phase::Ended | Phase::Failed | Phase::Stopping | Phase::Gone => {
            Err(ApiError::start_failed(&sandbox))
        }
    }
}

/// Lets a sandbox that could not be started stay as long as its caller wants and any may. The caller is told
/// of the failed start, so a failure here is only logged.
async fn keep_failed(door: &DoorState, tenant: &TenantId, id: &SandboxId, reserve: Reserve) {
    let longest = (!door.config.allow_no_expiry).then_some(door.config.timeout_max);
    let kept = match reserve {
        Reserve::Never | Reserve::Forever => longest,
        Reserve::For(duration) => Some(longest.map_or(duration, |longest| duration.min(longest))),
    };
    let until = kept.map(|duration| (door.now)().saturating_add(duration));
    let deadline = until.map(|at| Deadline { at, then: Expiry::Kill });
    if let Err(error) = door.control.set_deadline(tenant, id, deadline).await {
        tracing::warn!(sandbox = %id, %error, "a sandbox that did not start can't be kept");
    }
}

/// A sandbox that somebody waits for; when the waiter goes away, nobody knows of it, so it goes.
pub(super) struct Unfinished(Option<(DoorState, TenantId, SandboxId)>);

impl Unfinished {
    pub(super) fn new(door: &DoorState, tenant: &TenantId, id: &SandboxId) -> Self {
        Self(Some((door.clone(), tenant.clone(), id.clone())))
    }

    /// The waiter knows of it now.
    pub(super) fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some((door, tenant, id)) = self.0.take() else { return };
        tokio::spawn(async move {
            tracing::info!(sandbox = %id, "nobody waits for it any more, and it is not ready");
            if let Err(error) = door.control.kill(&tenant, &id).await {
                tracing::warn!(sandbox = %id, %error, "an abandoned sandbox can't be removed");
            }
        });
    }
}
