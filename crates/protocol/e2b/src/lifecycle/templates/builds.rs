//! Builds: asked for, started, watched.

use atoll_core::TenantId;
use atoll_template::{Level, LogEntry};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{Desk, Names, render, wire};
use crate::lifecycle::error::ApiError;
use crate::lifecycle::extract::Body;
use crate::lifecycle::form::Query;

/// Entries in one answer; clients ask again while they get any.
const ENTRIES_MAX: i64 = 100;

/// `POST /v3/templates` and `POST /v2/templates`.
pub(super) async fn request(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    body: Body,
) -> Result<Response, ApiError> {
    let wanted = wire::new_build(&body.required()?)?;
    let requested = desk.service.request(&tenant, &wanted).await?;
    let (template, build) = (&requested.template, &requested.build);
    // The older route's clients read a whole template.
    let mut shown = render::template(&desk, template);
    shown["buildID"] = build.id.as_str().into();
    shown["tags"] = json!(build.tags);
    Ok((StatusCode::ACCEPTED, Json(shown)).into_response())
}

/// `POST /v2/templates/{id}/builds/{build}`.
pub(super) async fn begin(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    names: Names,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let recipe = wire::recipe(&body.required()?)?;
    desk.service.begin(&tenant, names.get("id"), names.get("build"), recipe).await?;
    Ok(StatusCode::ACCEPTED)
}

/// `GET /templates/{id}/builds/{build}/status`.
pub(super) async fn status(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    names: Names,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let offset = query.number("logsOffset", 0..=i64::MAX)?.unwrap_or(0);
    let limit = query.number("limit", 0..=ENTRIES_MAX)?.unwrap_or(ENTRIES_MAX);
    let level = level(&query)?;
    // The status first: entries that come after it are fetched by the next call.
    let build = desk.service.build(&tenant, names.get("id"), names.get("build"))?;
    let (offset, limit) = (usize::try_from(offset), usize::try_from(limit));
    let offset = offset.unwrap_or(usize::MAX);
    let entries = desk.service.log(&build, offset, limit.unwrap_or(0), level);
    let mut shown = json!({
        "templateID": build.template,
        "buildID": build.id,
        "status": render::status(build.status),
        "logs": entries.iter().map(|entry| format!("{}\n", entry.message)).collect::<Value>(),
        "logEntries": entries.iter().map(render::entry).collect::<Value>(),
    });
    if let Some(reason) = &build.reason {
        let at_step = |entry: &&LogEntry| entry.step == reason.step && entry.level >= Level::Warn;
        let log = desk.service.log(&build, 0, usize::MAX, Level::Warn);
        let tail = log.iter().rev().filter(at_step).take(10).collect::<Vec<_>>();
        shown["reason"] = json!({
            "message": reason.message,
            "logEntries": tail.into_iter().rev().map(render::entry).collect::<Value>(),
        });
        if let Some(step) = &reason.step {
            shown["reason"]["step"] = step.as_str().into();
        }
    }
    Ok(Json(shown))
}

/// `GET /templates/{id}/builds/{build}/logs`.
pub(super) async fn logs(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    names: Names,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let build = desk.service.build(&tenant, names.get("id"), names.get("build"))?;
    let limit = query.number("limit", 0..=ENTRIES_MAX)?.unwrap_or(ENTRIES_MAX);
    let limit = usize::try_from(limit).unwrap_or(0);
    let cursor = query.number("cursor", 0..=i64::MAX)?;
    let level = level(&query)?;
    let backward = match query.get("direction") {
        None | Some("forward") => false,
        Some("backward") => true,
        Some(_) => return Err(ApiError::invalid("direction", "write forward or backward")),
    };
    let all = desk.service.log(&build, 0, usize::MAX, level);
    let millis = |entry: &LogEntry| entry.at_micros.div_euclid(1000);
    let shown: Vec<Value> = if backward {
        let wanted = all.iter().rev().filter(|e| cursor.is_none_or(|at| millis(e) <= at));
        wanted.take(limit).map(render::entry).collect()
    } else {
        let wanted = all.iter().filter(|e| cursor.is_none_or(|at| millis(e) >= at));
        wanted.take(limit).map(render::entry).collect()
    };
    Ok(Json(json!({ "logs": shown })))
}

fn level(query: &Query) -> Result<Level, ApiError> {
    let Some(text) = query.get("level") else { return Ok(Level::Debug) };
    Level::parse(text).ok_or_else(|| ApiError::invalid("level", "write debug, info, warn or error"))
}

/// The builds of old, for which clients push an image of their own.
pub(super) async fn refuse_upload_builds() -> ApiError {
    let message = "builds from an uploaded Dockerfile are gone: build with Template.build of an SDK \
                   from 2.0 on, or with POST /v3/templates";
    ApiError::new(StatusCode::GONE, message)
}
