//! Secrets: values go in and never come out.

use atoll_core::TenantId;
use atoll_vault::{Secret, SecretValue};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::cursor::{self, Cursor};
use super::error::ApiError;
use super::extract::{Body, PathName};
use super::form::Query;
use super::list::limit;
use super::read::Object;
use super::state::DoorState;
use super::time;

/// `POST /secrets`.
pub(super) async fn create(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    body: Body,
) -> Result<Response, ApiError> {
    let body = body.required()?;
    let body = Object::body(&body)?;
    let value = SecretValue::new(body.need_text("value")?.to_owned());
    let metadata = body.map("metadata")?.unwrap_or_default();
    let secret = door.secrets.create(&tenant, body.need_text("name")?, value, metadata).await?;
    Ok((StatusCode::CREATED, Json(shown(&secret))).into_response())
}

/// `GET /secrets`.
pub(super) async fn list(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    query: Query,
) -> Result<Response, ApiError> {
    let limit = limit(&query)?;
    let cursor = query.get("nextToken").map(|text| Cursor::parse(text, false)).transpose()?;
    let mut secrets = door.secrets.list(&tenant).await;
    secrets.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
    secrets.retain(|s| cursor.as_ref().is_none_or(|place| place.is_before(s.created_at, &s.id)));
    let (secrets, headers) = cursor::page(secrets, limit, |secret: &Secret| Cursor {
        at: secret.created_at,
        id: secret.id.clone(),
        oldest_first: false,
    });
    let items: Value = secrets.iter().map(shown).collect();
    Ok((headers, Json(items)).into_response())
}

/// `GET /secrets/{id}`, by id or name.
pub(super) async fn show(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathName(name): PathName,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(shown(&door.secrets.get(&tenant, &name).await?)))
}

/// `POST /secrets/{id}`: a new value.
pub(super) async fn update(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathName(name): PathName,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let body = body.required()?;
    let body = Object::body(&body)?;
    let value = SecretValue::new(body.need_text("value")?.to_owned());
    let metadata = body.map("metadata")?;
    Ok(Json(shown(&door.secrets.update(&tenant, &name, value, metadata).await?)))
}

/// `DELETE /secrets/{id}`.
pub(super) async fn remove(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathName(name): PathName,
) -> Result<StatusCode, ApiError> {
    door.secrets.remove(&tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(secret: &Secret) -> Value {
    json!({
        "secretID": secret.id,
        "name": secret.name,
        "currentVersion": secret.version,
        "metadata": secret.metadata,
        "createdAt": time::text(secret.created_at),
        "updatedAt": time::text(secret.updated_at),
    })
}
