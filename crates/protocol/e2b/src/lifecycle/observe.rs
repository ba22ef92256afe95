//! What sandboxes use and print.

use std::sync::Arc;

use atoll_control::Sample;
use atoll_core::{Sandbox, TenantId, Timestamp};
use axum::Json;
use axum::extract::{Extension, State};
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::extract::{PathSandbox, sandbox_id};
use super::form::Query;
use super::sandboxes::find;
use super::state::DoorState;
use super::{render, time};

/// Sandboxes that one request may ask about.
const SANDBOXES_MAX: usize = 100;
const LINES_MAX: i64 = 1000;
/// Bytes of output that are looked at.
const LOG_BYTES_MAX: usize = 1024 * 1024;
const LEVELS: [&str; 4] = ["debug", "info", "warn", "error"];

/// `GET /sandboxes/{id}/metrics`.
pub(super) async fn metrics(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let start = query.number("start", 0..=i64::MAX)?;
    let end = query.number("end", 0..=i64::MAX)?;
    let sandbox = find(&door, &tenant, &id).await?;
    let samples = door.control.samples(&tenant, &id).await?;
    let within = |sample: &&Sample| {
        let at = time::seconds(sample.at);
        start.is_none_or(|start| at >= start) && end.is_none_or(|end| at <= end)
    };
    let samples = samples.iter().filter(within);
    Ok(Json(samples.map(|sample| render::metric(&door.config, &sandbox, sample)).collect()))
}

/// `GET /sandboxes/metrics`: the newest of each.
pub(super) async fn metrics_of_many(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let ids = query.list("sandbox_ids");
    if ids.is_empty() || ids.len() > SANDBOXES_MAX {
        let problem = format!("write 1 to {SANDBOXES_MAX} ids with commas between them");
        return Err(ApiError::invalid("sandbox_ids", problem));
    }
    let mut shown = Map::new();
    for text in ids {
        let Some(id) = sandbox_id(text) else { continue };
        let Ok(sandbox) = find(&door, &tenant, &id).await else { continue };
        let Ok(samples) = door.control.samples(&tenant, &id).await else { continue };
        if let Some(newest) = samples.last() {
            shown.insert(id.to_string(), render::metric(&door.config, &sandbox, newest));
        }
    }
    Ok(Json(json!({"sandboxes": shown})))
}

/// `GET /sandboxes/{id}/logs`.
pub(super) async fn logs_v1(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let start = query.number("start", 0..=i64::MAX)?;
    let limit = line_limit(&query)?;
    let sandbox = find(&door, &tenant, &id).await?;
    let log = door.control.logs(&tenant, &id, LOG_BYTES_MAX).await?;
    let mut lines = lines(&log.bytes);
    lines.retain(|_| start.is_none_or(|start| millis(sandbox.created_at) >= start));
    lines.truncate(limit);
    let at = time::text(sandbox.created_at);
    let plain: Value = lines.iter().map(|line| json!({"timestamp": at, "line": line})).collect();
    let entries: Value = lines.iter().map(|line| entry(&sandbox, line)).collect();
    Ok(Json(json!({"logs": plain, "logEntries": entries})))
}

/// `GET /v2/sandboxes/{id}/logs`.
pub(super) async fn logs_v2(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let cursor = query.number("cursor", 0..=i64::MAX)?;
    let limit = line_limit(&query)?;
    let backward = match query.get("direction") {
        None | Some("backward") => true,
        Some("forward") => false,
        Some(_) => return Err(ApiError::invalid("direction", "write forward or backward")),
    };
    // Everything a sandbox prints is plain information.
    let shows_info = match query.get("level") {
        None => true,
        Some(level) if LEVELS.contains(&level) => ["debug", "info"].contains(&level),
        Some(_) => return Err(ApiError::invalid("level", "write debug, info, warn or error")),
    };
    let sandbox = find(&door, &tenant, &id).await?;
    let log = door.control.logs(&tenant, &id, LOG_BYTES_MAX).await?;
    let at = millis(sandbox.created_at);
    let in_reach = cursor.is_none_or(|c| if backward { at <= c } else { at >= c });
    let mut lines = lines(&log.bytes);
    lines.retain(|line| {
        shows_info && in_reach && query.get("search").is_none_or(|text| line.contains(text))
    });
    if backward {
        lines.reverse();
    }
    lines.truncate(limit);
    let entries: Value = lines.iter().map(|line| entry(&sandbox, line)).collect();
    Ok(Json(json!({"logs": entries})))
}

fn line_limit(query: &Query) -> Result<usize, ApiError> {
    let limit = query.number("limit", 0..=LINES_MAX)?.unwrap_or(LINES_MAX);
    Ok(usize::try_from(limit).unwrap_or(0))
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

/// Lines carry no time of their own; all are shown with the start of the sandbox.
fn entry(sandbox: &Arc<Sandbox>, line: &str) -> Value {
    let fields = json!({"source": "entrypoint"});
    json!({
        "timestamp": time::text(sandbox.created_at),
        "message": line,
        "level": "info",
        "fields": fields,
    })
}

fn millis(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(1000)
}
