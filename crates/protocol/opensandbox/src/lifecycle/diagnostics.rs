//! What happened to a sandbox, for people: its output and its story.

use std::fmt::Write as _;
use std::time::Duration;

use atoll_core::{Sandbox, TenantId};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::error::{ApiError, Doing};
use super::extract::PathSandbox;
use super::form::Query;
use super::sandboxes::{find, sort};
use super::state::DoorState;
use super::{render, time};

/// Bytes of output that one answer carries.
const LOG_BYTES_MAX: usize = 1024 * 1024;
const LINES_MAX: i64 = 10_000;
const LINES_DEFAULT: i64 = 100;
const OLDER_OUTPUT: &str =
    "output is kept without times, so older output than asked for with since is shown too";

type Answer<T> = Result<T, ApiError>;

/// `GET /sandboxes/{id}/diagnostics/logs`.
pub(super) async fn logs(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    query: Query,
) -> Answer<Response> {
    let tail = query.number("tail", 1..=LINES_MAX, LINES_DEFAULT)?;
    let since = query.last("since").filter(|since| !since.is_empty()).map(duration).transpose()?;
    let scope = query.last("scope");
    check_scope(scope, &["container", "all"])?;
    let sandbox = find(&door, &tenant, &id).await?;
    // Output has no times: what is older can't be left out, so the client is told.
    let age = sandbox.created_at.until((door.now)());
    let warning = since.filter(|since| *since < age).map(|_| OLDER_OUTPUT);
    let found = sort(Doing::Read, door.control.logs(&tenant, &id, LOG_BYTES_MAX).await)?;
    let text = String::from_utf8_lossy(&found.bytes).into_owned();
    Ok(match scope {
        Some(scope) => {
            let mut shown = inline(id.as_str(), "logs", scope, text, found.truncated);
            if let Some(warning) = warning {
                shown["warnings"] = json!([warning]);
            }
            Json(shown).into_response()
        }
        None => {
            let mut response = deprecated(last_lines(&text, tail));
            if let Some(warning) = warning {
                let value = HeaderValue::from_static(warning);
                response.headers_mut().insert("atoll-warning", value);
            }
            response
        }
    })
}

/// A duration such as `30s`, `10m`, `2h`, `1d`, or plain seconds.
fn duration(text: &str) -> Answer<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 0,
    };
    let total = number.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds));
    total
        .filter(|_| seconds > 0)
        .map(Duration::from_secs)
        .ok_or_else(|| ApiError::invalid("since", "write a duration such as 30s, 10m, 2h or 1d"))
}

/// `GET /sandboxes/{id}/diagnostics/events`.
pub(super) async fn events(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    query: Query,
) -> Answer<Response> {
    let limit = query.number("limit", 1..=LINES_MAX, LINES_DEFAULT)?;
    let scope = query.last("scope");
    check_scope(scope, &["runtime", "lifecycle", "all"])?;
    let sandbox = find(&door, &tenant, &id).await?;
    let story = story(&sandbox);
    Ok(match scope {
        Some(scope) => Json(inline(id.as_str(), "events", scope, story, false)).into_response(),
        None => deprecated(last_lines(&story, limit)),
    })
}

/// `GET /sandboxes/{id}/diagnostics/inspect`.
pub(super) async fn inspect(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
) -> Answer<Response> {
    let sandbox = find(&door, &tenant, &id).await?;
    Ok(plain(inspection(&sandbox)))
}

/// `GET /sandboxes/{id}/diagnostics/summary`.
pub(super) async fn summary(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    query: Query,
) -> Answer<Response> {
    let tail = query.number("tail", 1..=LINES_MAX, 50)?;
    let limit = query.number("event_limit", 1..=LINES_MAX, 20)?;
    let sandbox = find(&door, &tenant, &id).await?;
    // A sandbox that never ran has no output; the rest is still worth showing.
    let logs = door.control.logs(&tenant, &id, LOG_BYTES_MAX).await.unwrap_or_default();
    let logs = String::from_utf8_lossy(&logs.bytes).into_owned();
    Ok(plain(format!(
        "=== Inspect ===\n{}\n\n=== Events ===\n{}\n\n=== Logs ===\n{}\n",
        inspection(&sandbox),
        last_lines(&story(&sandbox), limit),
        last_lines(&logs, tail),
    )))
}

fn check_scope(scope: Option<&str>, known: &[&str]) -> Answer<()> {
    match scope {
        Some(scope) if !known.contains(&scope) => Err(ApiError::bad_request(
            "DIAGNOSTICS_SCOPE_UNSUPPORTED",
            format!("scope: use one of {}", known.join(", ")),
        )),
        Some(_) | None => Ok(()),
    }
}

fn inline(id: &str, kind: &str, scope: &str, content: String, truncated: bool) -> Value {
    json!({
        "sandboxId": id,
        "kind": kind,
        "scope": scope,
        "delivery": "inline",
        "contentType": "text/plain; charset=utf-8",
        "contentLength": content.len(),
        "content": content,
        "truncated": truncated,
    })
}

/// The timeline in the contract's words, one line each, oldest first.
fn story(sandbox: &Sandbox) -> String {
    let mut story = String::new();
    for entry in sandbox.life.timeline().entries() {
        let (state, _) = render::state(entry.phase);
        let said: String =
            entry.message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        // Writing to a string can't fail.
        let _ = writeln!(story, "{} {state} {said}", time::text(entry.at));
    }
    story
}

fn inspection(sandbox: &Sandbox) -> String {
    let mut shown = render::sandbox(sandbox);
    let resources = &sandbox.spec.resources;
    shown["resourceLimits"] = json!({
        "cpuMillis": resources.cpu_millis,
        "memoryBytes": resources.memory_bytes,
        "pids": resources.pids,
    });
    format!("{shown:#}")
}

fn last_lines(text: &str, count: i64) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let keep = usize::try_from(count).unwrap_or(usize::MAX);
    lines[lines.len().saturating_sub(keep)..].join("\n")
}

fn plain(text: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, text).into_response()
}

fn deprecated(text: String) -> Response {
    ([(HeaderName::from_static("deprecation"), "true")], plain(text)).into_response()
}
