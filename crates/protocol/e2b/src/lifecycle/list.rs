//! Lists of sandboxes.

use std::cmp::Reverse;
use std::sync::Arc;

use atoll_control::{Filter, Paging};
use atoll_core::{Phase, Sandbox, TenantId};
use atoll_template::BUILDER_LABEL;
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::cursor::{self, Cursor};
use super::error::ApiError;
use super::form::{self, Query};
use super::state::DoorState;
use super::{render, time};

/// Sandboxes of one tenant that are looked at.
const SEARCHED_MAX: usize = 100_000;
const PAGE_MAX: i64 = 100;
const TOTAL_RUNNING: &str = "x-total-running";

/// `GET /v2/sandboxes`.
pub(super) async fn list(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    query: Query,
) -> Result<Response, ApiError> {
    let filter = filter(&query)?;
    let limit = limit(&query)?;
    let cursor = query.get("nextToken");
    let cursor = cursor.map(|text| Cursor::parse(text, filter.oldest_first)).transpose()?;
    let found = sorted(&door, &tenant, &filter).await?;
    let running = found.iter().filter(|s| s.life.phase() == Phase::Running).count();
    let after = |sandbox: &&Arc<Sandbox>| {
        cursor.as_ref().is_none_or(|place| place.is_before(sandbox.created_at, sandbox.id.as_str()))
    };
    let rest = found.iter().filter(after).collect();
    let (page, mut headers) = cursor::page(rest, limit, |sandbox: &&Arc<Sandbox>| Cursor {
        at: sandbox.created_at,
        id: sandbox.id.as_str().to_owned(),
        oldest_first: filter.oldest_first,
    });
    headers.insert(TOTAL_RUNNING, HeaderValue::from(running));
    Ok((headers, Json(shown(&door, page))).into_response())
}

/// `GET /sandboxes`, of old: what runs, newest first, all at once.
pub(super) async fn list_v1(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let metadata = query.get("metadata").map(form::metadata).transpose()?.unwrap_or_default();
    let filter = Filter { phases: vec![Phase::Running], metadata, ..Filter::default() };
    let found = sorted(&door, &tenant, &filter).await?;
    Ok(Json(shown(&door, found.iter().collect())))
}

/// `limit` of a query.
pub(super) fn limit(query: &Query) -> Result<usize, ApiError> {
    let limit = query.number("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_MAX);
    Ok(usize::try_from(limit).unwrap_or(1))
}

fn filter(query: &Query) -> Result<Filter, ApiError> {
    let states = query.list("state");
    let wanted = |name: &str| states.is_empty() || states.contains(&name);
    if let Some(other) = states.iter().find(|name| !["running", "paused"].contains(name)) {
        let problem = format!("{other:?} is none; write running, paused or both");
        return Err(ApiError::invalid("state", problem));
    }
    let oldest_first = match query.get("order") {
        None | Some("desc") => false,
        Some("asc") => true,
        Some(_) => return Err(ApiError::invalid("order", "write asc or desc")),
    };
    let created_from = query.get("startedAfter").map(|text| {
        let problem = "write a time such as 2026-01-31T12:00:00Z";
        time::parse(text).ok_or_else(|| ApiError::invalid("startedAfter", problem))
    });
    let phases = Phase::ALL.into_iter();
    Ok(Filter {
        phases: phases.filter(|p| render::state(*p).is_some_and(|s| wanted(s.text()))).collect(),
        metadata: query.get("metadata").map(form::metadata).transpose()?.unwrap_or_default(),
        template: query.get("template").map(str::to_owned),
        created_from: created_from.transpose()?,
        oldest_first,
    })
}

async fn sorted(
    door: &DoorState,
    tenant: &TenantId,
    filter: &Filter,
) -> Result<Vec<Arc<Sandbox>>, ApiError> {
    let paging = Paging { skip: 0, take: SEARCHED_MAX };
    let mut found = door.control.list(tenant, filter, paging).await?.items;
    // Sandboxes in which templates are built are seen by their builds.
    found.retain(|sandbox| !sandbox.spec.extensions.contains_key(BUILDER_LABEL));
    found.sort_by(|a, b| {
        (Reverse(a.created_at), a.id.as_str()).cmp(&(Reverse(b.created_at), b.id.as_str()))
    });
    if filter.oldest_first {
        found.reverse();
    }
    Ok(found)
}

fn shown(door: &DoorState, sandboxes: Vec<&Arc<Sandbox>>) -> Value {
    let shown = sandboxes.into_iter().filter_map(|sandbox| {
        let state = render::state(sandbox.life.phase())?;
        Some(Value::Object(render::listed(&door.config, sandbox, state)))
    });
    shown.collect()
}
