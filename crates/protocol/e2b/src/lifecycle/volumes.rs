//! Volumes by name and id.

use atoll_control::Volume;
use atoll_core::{ErrorKind, TenantId};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::error::ApiError;
use super::extract::{Body, PathName};
use super::read::Object;
use super::state::DoorState;

/// `POST /volumes`.
pub(super) async fn create(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    body: Body,
) -> Result<Response, ApiError> {
    let body = body.required()?;
    let name = Object::body(&body)?.need_text("name")?;
    let volume = door.volumes.create_volume(&tenant, name).await.map_err(|error| {
        // The contract has no 409 here.
        match error.kind() {
            ErrorKind::Conflict => ApiError::invalid("name", error.message()),
            _ => error.into(),
        }
    })?;
    Ok((StatusCode::CREATED, Json(with_token(&volume))).into_response())
}

/// `GET /volumes`.
pub(super) async fn list(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
) -> Result<Json<Value>, ApiError> {
    let volumes = door.volumes.volumes(&tenant).await?;
    let shown = volumes.iter().map(|v| json!({"volumeID": v.id, "name": v.name}));
    Ok(Json(shown.collect()))
}

/// `GET /volumes/{id}`.
pub(super) async fn show(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathName(id): PathName,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(with_token(&door.volumes.volume(&tenant, &id).await?)))
}

/// `DELETE /volumes/{id}`.
pub(super) async fn remove(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathName(id): PathName,
) -> Result<StatusCode, ApiError> {
    door.volumes.remove_volume(&tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn with_token(volume: &Volume) -> Value {
    json!({"volumeID": volume.id, "name": volume.name, "token": volume.token})
}
