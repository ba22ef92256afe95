//! Tags of builds.

use atoll_core::TenantId;
use atoll_template::Reference;
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{Desk, Names};
use crate::lifecycle::error::ApiError;
use crate::lifecycle::extract::Body;
use crate::lifecycle::form::Query;
use crate::lifecycle::read::Object;
use crate::lifecycle::time;

/// `POST /templates/tags`.
pub(super) async fn assign(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    body: Body,
) -> Result<Response, ApiError> {
    let body = body.required()?;
    let body = Object::body(&body)?;
    let (target, tags) = (body.need_text("target")?, body.texts("tags")?);
    let (tags, build) = desk.service.assign_tags(&tenant, target, &tags).await?;
    let shown = json!({ "tags": tags, "buildID": build.id });
    Ok((StatusCode::CREATED, Json(shown)).into_response())
}

/// `DELETE /templates/tags`.
pub(super) async fn remove(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let body = body.required()?;
    let body = Object::body(&body)?;
    let (name, tags) = (body.need_text("name")?, body.texts("tags")?);
    desk.service.remove_tags(&tenant, name, &tags).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /templates/{id}/tags`.
pub(super) async fn list(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    names: Names,
) -> Result<Json<Value>, ApiError> {
    let template = desk.service.template(&tenant, names.get("id"))?;
    let shown = template.tags.iter().map(|(tag, points)| {
        json!({ "tag": tag, "buildID": points.build, "createdAt": time::text(points.created_at) })
    });
    Ok(Json(shown.collect()))
}

/// `GET /templates/{id}/tags/count`.
pub(super) async fn count(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    names: Names,
) -> Result<Json<Value>, ApiError> {
    let template = desk.service.template(&tenant, names.get("id"))?;
    Ok(Json(json!({ "total": template.tags.len() })))
}

/// `GET /templates/{id}/tags/exists?tag=`.
pub(super) async fn exists(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    names: Names,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let template = desk.service.template(&tenant, names.get("id"))?;
    let tag = query.get("tag").ok_or_else(|| ApiError::invalid("tag", "is required"))?;
    let tag = Reference::parse(&format!("x:{tag}"))?.tag().to_owned();
    let exists = template.tags.contains_key(&tag);
    Ok(Json(json!({ "exists": exists, "normalizedTag": tag })))
}
