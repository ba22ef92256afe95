//! Templates: their names, builds, files and tags.

mod builds;
mod files;
mod render;
mod tags;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use atoll_core::{Error, ErrorKind, TenantId};
use atoll_template::{Build, Template, TemplateService};
use axum::extract::{DefaultBodyLimit, Extension, FromRequestParts, RawPathParams, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::auth;
use super::cursor::{self, Cursor};
use super::error::{ApiError, wrong_method};
use super::extract::Body;
use super::form::Query;
use super::list::limit;
use super::read::Object;
use super::state::{DoorConfig, DoorState};

/// Largest body of a request; a build may have many long steps.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What these routes need.
#[derive(Clone)]
struct Desk {
    service: Arc<TemplateService>,
    config: Arc<DoorConfig>,
}

/// All routes of templates, to be merged with [`router`](super::router): at the root, and once
/// more below `/kruise/api`. `service` must be what `door.templates` is.
pub fn template_router(door: &DoorState, service: Arc<TemplateService>) -> Router {
    let desk = Desk { service, config: door.config.clone() };
    let keyed = routes()
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .route_layer(from_fn_with_state(door.clone(), auth::require_key));
    // Whoever has the URL may send the files: clients send no key there.
    let open = Router::new().route("/templates/{id}/files/{hash}", put(files::receive));
    let all = keyed.merge(open).method_not_allowed_fallback(wrong_method).with_state(desk);
    Router::new().nest("/kruise/api", all.clone()).merge(all)
}

fn routes() -> Router<Desk> {
    Router::new()
        .route("/v3/templates", post(builds::request))
        .route("/v2/templates", post(builds::request).get(list_page))
        .route("/templates", post(builds::refuse_upload_builds).get(list))
        .route("/default-templates", get(list_built_in))
        .route(
            "/templates/{id}",
            get(show).delete(remove).patch(change).post(builds::refuse_upload_builds),
        )
        .route("/v2/templates/{id}", axum::routing::patch(change_v2))
        .route("/templates/{id}/files/{hash}", get(files::presence))
        .route("/v2/templates/{id}/builds/{build}", post(builds::begin))
        .route("/templates/{id}/builds/{build}", post(builds::refuse_upload_builds))
        .route("/templates/{id}/builds/{build}/status", get(builds::status))
        .route("/templates/{id}/builds/{build}/logs", get(builds::logs))
        .route("/templates/aliases/{id}", get(alias))
        .route("/templates/tags", post(tags::assign).delete(tags::remove))
        .route("/templates/{id}/tags", get(tags::list))
        .route("/templates/{id}/tags/count", get(tags::count))
        .route("/templates/{id}/tags/exists", get(tags::exists))
}

/// The named parts of a path, decoded.
struct Names(Vec<(String, String)>);

impl Names {
    fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Names {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params.map_err(|_| ApiError::not_found("there is no such route"))?;
        Ok(Self(params.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()))
    }
}

/// `GET /templates`: the caller's own.
async fn list(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    check_team(&tenant, &query)?;
    let own = desk.service.templates(&tenant);
    Ok(Json(own.iter().map(|template| render::template(&desk, template)).collect()))
}

/// `GET /v2/templates`: the same, page by page.
async fn list_page(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    query: Query,
) -> Result<Response, ApiError> {
    check_team(&tenant, &query)?;
    let limit = limit(&query)?;
    let cursor = query.get("nextToken").map(|text| Cursor::parse(text, false)).transpose()?;
    let mut own = desk.service.templates(&tenant);
    own.retain(|t| cursor.as_ref().is_none_or(|place| place.is_before(t.created_at, &t.id)));
    let place =
        |t: &Arc<Template>| Cursor { at: t.created_at, id: t.id.clone(), oldest_first: false };
    let (own, headers) = cursor::page(own, limit, place);
    let shown: Value = own.iter().map(|template| render::template(&desk, template)).collect();
    Ok((headers, Json(shown)).into_response())
}

/// `GET /default-templates`: those that the server brings along.
async fn list_built_in(State(desk): State<Desk>) -> Json<Value> {
    let built_in = desk.service.built_ins();
    Json(built_in.iter().map(|template| render::template(&desk, template)).collect())
}

/// One tenant is one team.
fn check_team(tenant: &TenantId, query: &Query) -> Result<(), ApiError> {
    match query.get("teamID") {
        Some(team) if team != tenant.as_str() => {
            let message = "teamID: is not a team of yours; leave it out";
            Err(ApiError::new(StatusCode::FORBIDDEN, message))
        }
        Some(_) | None => Ok(()),
    }
}

/// `GET /templates/{id}`.
async fn show(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    names: Names,
    query: Query,
) -> Result<Response, ApiError> {
    let template = desk.service.template(&tenant, names.get("id"))?;
    let limit = limit(&query)?;
    let cursor = query.get("nextToken").map(|text| Cursor::parse(text, false)).transpose()?;
    let mut builds = desk.service.builds(&template);
    builds.retain(|b| cursor.as_ref().is_none_or(|place| place.is_before(b.created_at, &b.id)));
    let place = |b: &Arc<Build>| Cursor { at: b.created_at, id: b.id.clone(), oldest_first: false };
    let (builds, headers) = cursor::page(builds, limit, place);
    let mut shown = render::template(&desk, &template);
    shown["builds"] = builds.iter().map(|build| render::build(&desk, build)).collect();
    Ok((headers, Json(shown)).into_response())
}

/// `DELETE /templates/{id}`: a template, or a snapshot.
async fn remove(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    names: Names,
) -> Result<StatusCode, ApiError> {
    desk.service.remove(&tenant, names.get("id")).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `PATCH /templates/{id}`.
async fn change(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    names: Names,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    set_public(&desk, &tenant, &names, body).await.map(|_| Json(json!({})))
}

/// `PATCH /v2/templates/{id}`.
async fn change_v2(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    names: Names,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let names = set_public(&desk, &tenant, &names, body).await?;
    Ok(Json(json!({ "names": names })))
}

async fn set_public(
    desk: &Desk,
    tenant: &TenantId,
    names: &Names,
    body: Body,
) -> Result<Vec<String>, ApiError> {
    let body = body.or_empty();
    let template = match Object::body(&body)?.flag("public")? {
        Some(public) => desk.service.set_public(tenant, names.get("id"), public).await?,
        None => desk.service.own(tenant, names.get("id"))?,
    };
    Ok(template.full_names())
}

/// `GET /templates/aliases/{alias}`: whether a name, and its tag if it has one, is taken.
async fn alias(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    names: Names,
) -> Result<Json<Value>, ApiError> {
    let name = names.get("id");
    let template = match name.contains(':') {
        true => desk.service.find(&tenant, name)?.template,
        false => desk.service.template(&tenant, name)?,
    };
    Ok(Json(json!({ "templateID": template.id, "public": template.public })))
}

/// An upload that is too large has its own status.
fn upload_error(error: Error) -> ApiError {
    match (error.kind(), error.reason()) {
        (ErrorKind::Invalid, Some("UPLOAD_TOO_LARGE")) => {
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error.message())
        }
        _ => error.into(),
    }
}
