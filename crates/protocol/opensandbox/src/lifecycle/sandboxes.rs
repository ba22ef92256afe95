//! Sandboxes: make, show, list, change, end.

use std::sync::Arc;

use atoll_control::{Filter, Page, Paging};
use atoll_core::{Aging, Deadline, Keep, Phase, Result as CoreResult, Sandbox, Source, TenantId};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::error::{ApiError, Doing};
use super::extract::{Body, PathSandbox};
use super::form::{self, Query};
use super::snapshots::find_snapshot;
use super::state::DoorState;
use super::{convert, render, time, wire};

type Answer<T> = Result<T, ApiError>;

/// `POST /sandboxes`. Waits a while, so that the answer usually is a running sandbox; should the
/// client leave meanwhile, the sandbox goes on and ends at its own time.
pub(super) async fn create(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    body: Body,
) -> Answer<Response> {
    let request = wire::CreateSandbox::read(&body.required()?)?;
    let create = convert::create(&door.config, request)?;
    if let Source::Snapshot(id) = &create.spec.source {
        find_snapshot(&door, &tenant, id, Doing::Create).await?;
    }
    let sandbox = sort(Doing::Create, door.control.create(&tenant, create).await)?;
    let patience = door.config.create_wait;
    let waited = door.control.wait(&tenant, &sandbox.id, patience).await;
    let sandbox = sort(Doing::Read, waited)?;
    if sandbox.life.phase() == Phase::Failed && !has_run(&sandbox) {
        return Err(ApiError::start_failed(&sandbox));
    }
    Ok((StatusCode::ACCEPTED, Json(render::created(&sandbox))).into_response())
}

/// It came up, and only then its entrypoint failed: that is no failure of the creation, nor of
/// a resumption.
fn has_run(sandbox: &Sandbox) -> bool {
    let reason = sandbox.life.diagnostic().map(|diagnostic| diagnostic.reason.as_str());
    matches!(reason, Some("ENTRYPOINT_EXITED" | "OUT_OF_MEMORY"))
}

/// `GET /sandboxes/{id}`.
pub(super) async fn show(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
) -> Answer<Json<Value>> {
    let sandbox = sort(Doing::Read, door.control.get(&tenant, &id).await)?;
    Ok(Json(render::sandbox(&sandbox)))
}

/// `GET /sandboxes`.
pub(super) async fn list(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    query: Query,
) -> Answer<Json<Value>> {
    let (page, page_size) = paging(&query)?;
    let filter = filter(&query)?;
    let paging = Paging { skip: (page - 1).saturating_mul(page_size), take: page_size };
    let found = match filter {
        Some(filter) => sort(Doing::Read, door.control.list(&tenant, &filter, paging).await)?,
        None => Page { items: Vec::new(), total: 0 },
    };
    let items = found.items.iter().map(|sandbox| render::sandbox(sandbox)).collect();
    Ok(Json(render::page(items, page, page_size, found.total)))
}

/// `page` and `pageSize` of a query.
pub(super) fn paging(query: &Query) -> Answer<(usize, usize)> {
    let page = query.number("page", 1..=i64::MAX, 1)?;
    let page_size = query.number("pageSize", 1..=200, 20)?;
    Ok((usize::try_from(page).unwrap_or(usize::MAX), usize::try_from(page_size).unwrap_or(20)))
}

/// `None` when the query can match nothing.
fn filter(query: &Query) -> Answer<Option<Filter>> {
    let mut filter = Filter::default();
    if let Some(text) = query.last("metadata").filter(|text| !text.is_empty()) {
        let pairs = form::strict_pairs(text).ok_or_else(|| {
            ApiError::bad_request(
                "INVALID_METADATA_FORMAT",
                "metadata: write URL-encoded pairs such as key=value&other=value".to_owned(),
            )
        })?;
        filter.metadata = pairs.into_iter().collect();
    }
    let mut has_states = false;
    for wanted in query.all("state").flat_map(|states| states.split(',')) {
        has_states = true;
        let matching = |phase: &Phase| render::state(*phase).0.eq_ignore_ascii_case(wanted.trim());
        filter.phases.extend(Phase::ALL.into_iter().filter(matching));
    }
    Ok((!has_states || !filter.phases.is_empty()).then_some(filter))
}

/// `DELETE /sandboxes/{id}`.
pub(super) async fn kill(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
) -> Answer<StatusCode> {
    sort(Doing::Read, door.control.kill(&tenant, &id).await)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `PATCH /sandboxes/{id}/metadata`.
pub(super) async fn patch_metadata(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    body: Body,
) -> Answer<Json<Value>> {
    let patch = wire::read_metadata_patch(&body.required()?)?;
    let present = sort(Doing::Read, door.control.get(&tenant, &id).await)?;
    convert::labels::check_patch(&present.spec.metadata, &patch)?;
    let patched = door.control.patch_metadata(&tenant, &id, patch).await;
    Ok(Json(render::sandbox(&*sort(Doing::Read, patched)?)))
}

/// `POST /sandboxes/{id}/pause`. Waits as a creation does, so that the sandbox usually stands
/// still when the answer comes.
pub(super) async fn pause(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
) -> Answer<StatusCode> {
    sort(Doing::Pause, door.control.pause(&tenant, &id, Keep::Memory, Aging::GoesOn).await)?;
    let waited = door.control.wait(&tenant, &id, door.config.create_wait).await;
    let sandbox = sort(Doing::Pause, waited)?;
    let given_up = sandbox.life.phase() == Phase::Running && sandbox.life.diagnostic().is_some();
    if given_up || sandbox.life.phase() == Phase::Failed {
        return Err(ApiError::pause_failed(&sandbox));
    }
    Ok(StatusCode::ACCEPTED)
}

/// `POST /sandboxes/{id}/resume`. Waits as a creation does, so that the sandbox usually runs when
/// the answer comes.
pub(super) async fn resume(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
) -> Answer<StatusCode> {
    sort(Doing::Resume, door.control.resume(&tenant, &id, None).await)?;
    let waited = door.control.wait(&tenant, &id, door.config.create_wait).await;
    let sandbox = sort(Doing::Resume, waited)?;
    if sandbox.life.phase() == Phase::Failed && !has_run(&sandbox) {
        return Err(ApiError::resume_failed(&sandbox));
    }
    Ok(StatusCode::ACCEPTED)
}

/// `POST /sandboxes/{id}/renew-expiration`.
pub(super) async fn renew(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    body: Body,
) -> Answer<Json<Value>> {
    let at = wire::read_renewal(&body.required()?)?;
    let sandbox = sort(Doing::Read, door.control.get(&tenant, &id).await)?;
    let Some(deadline) = sandbox.life.deadline() else {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "DOCKER::INVALID_EXPIRATION",
            "this sandbox has no end that could be moved; delete it when it is not needed",
        ));
    };
    if at <= (door.now)() {
        return Err(ApiError::bad_request(
            "DOCKER::INVALID_EXPIRATION",
            "expiresAt: must lie in the future".to_owned(),
        ));
    }
    let deadline = Some(Deadline { at, then: deadline.then });
    let renewed = door.control.set_deadline(&tenant, &id, deadline).await;
    let renewed = sort(Doing::Renew, renewed)?;
    let at = renewed.life.deadline().map_or(at, |deadline| deadline.at);
    Ok(Json(json!({"expiresAt": time::text(at)})))
}

/// An answer of `Control`, with this door's words for a failure.
pub(super) fn sort<T>(doing: Doing, answer: CoreResult<T>) -> Answer<T> {
    answer.map_err(|error| ApiError::from_control(doing, &error))
}

/// One sandbox of a tenant.
pub(super) async fn find(
    door: &DoorState,
    tenant: &TenantId,
    id: &atoll_core::SandboxId,
) -> Answer<Arc<Sandbox>> {
    sort(Doing::Read, door.control.get(tenant, id).await)
}
