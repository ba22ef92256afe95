//! Snapshots: the files of a sandbox, kept.

use std::sync::Arc;

use atoll_control::SnapshotFilter;
use atoll_core::{Error, SandboxId, Snapshot, SnapshotId, SnapshotState, TenantId};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::error::{ApiError, Doing};
use super::extract::{Body, PathSandbox, PathSnapshot};
use super::form::Query;
use super::sandboxes::{find, paging, sort};
use super::state::DoorState;
use super::{render, wire};

/// `POST /sandboxes/{id}/snapshots`.
pub(super) async fn create(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    body: Body,
) -> Result<Response, ApiError> {
    let name = wire::read_snapshot(body.0.as_ref())?;
    find(&door, &tenant, &id).await?;
    let taken = door.control.snapshot(&tenant, &id, name).await;
    let snapshot = sort(Doing::TakeSnapshot, taken)?;
    let location = [(header::LOCATION, format!("/v1/snapshots/{}", snapshot.id))];
    Ok((StatusCode::ACCEPTED, location, Json(render::snapshot(&snapshot))).into_response())
}

/// `GET /snapshots/{id}`.
pub(super) async fn show(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSnapshot(id): PathSnapshot,
) -> Result<Json<Value>, ApiError> {
    let snapshot = find_snapshot(&door, &tenant, &id, Doing::ReadSnapshot).await?;
    Ok(Json(render::snapshot(&snapshot)))
}

/// `GET /snapshots`.
pub(super) async fn list(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let (page, page_size) = paging(&query)?;
    let nothing = Json(render::page(Vec::new(), page, page_size, 0));
    let sandbox = match query.last("sandboxId").filter(|id| !id.is_empty()).map(SandboxId::parse) {
        Some(Ok(id)) => Some(id),
        // What can't be an id was never a source.
        Some(Err(_)) => return Ok(nothing),
        None => None,
    };
    let name = query.last("name").filter(|name| !name.is_empty()).map(str::to_owned);
    let filter = SnapshotFilter { sandbox, name };
    let found = sort(Doing::ReadSnapshot, door.control.list_snapshots(&tenant, &filter).await)?;
    let states: Vec<&str> = query.all("state").flat_map(|s| s.split(',')).map(str::trim).collect();
    let wanted = |snapshot: &Snapshot| {
        let (state, _) = render::snapshot_state(&snapshot.state);
        let chosen = states.is_empty() || states.iter().any(|s| s.eq_ignore_ascii_case(state));
        chosen && snapshot.state != SnapshotState::Deleting
    };
    let matching: Vec<_> = found.iter().filter(|snapshot| wanted(snapshot)).collect();
    let skip = (page - 1).saturating_mul(page_size);
    let shown = matching.iter().skip(skip).take(page_size);
    let items = shown.map(|snapshot| render::snapshot(snapshot)).collect();
    Ok(Json(render::page(items, page, page_size, matching.len())))
}

/// `DELETE /snapshots/{id}`.
pub(super) async fn remove(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSnapshot(id): PathSnapshot,
) -> Result<StatusCode, ApiError> {
    let snapshot = find_snapshot(&door, &tenant, &id, Doing::DeleteSnapshot).await?;
    if snapshot.state == SnapshotState::Creating {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "SNAPSHOT::INVALID_STATE",
            "the snapshot is still being taken; delete it once it is Ready",
        ));
    }
    sort(Doing::DeleteSnapshot, door.control.delete_snapshot(&tenant, &id).await)?;
    Ok(StatusCode::NO_CONTENT)
}

/// One snapshot of a tenant. One whose removal was acknowledged is gone for clients, even while
/// its files still are being removed.
pub(super) async fn find_snapshot(
    door: &DoorState,
    tenant: &TenantId,
    id: &SnapshotId,
    doing: Doing,
) -> Result<Arc<Snapshot>, ApiError> {
    let snapshot = sort(doing, door.control.get_snapshot(tenant, id).await)?;
    if snapshot.state == SnapshotState::Deleting {
        return sort(doing, Err(Error::not_found(format_args!("snapshot {id}"))));
    }
    Ok(snapshot)
}
