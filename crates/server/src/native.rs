//! `/atoll/v1`: what the OpenSandbox API has no place for, for our own command line.

use atoll_core::{Error, ErrorKind, Result, SandboxId, TenantId};
use atoll_opensandbox::lifecycle::{sandbox_json, timeline_json};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Extension, Json, Router};
use serde_json::{Value, json};

use crate::app::App;

mod pools;

/// Bytes of output shown when a client doesn't say, and the most it may ask for.
const LOG_BYTES_DEFAULT: usize = 64 * 1024;
const LOG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The routes, each behind an API key.
pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/atoll/v1/sandboxes/{id}", get(show))
        .route("/atoll/v1/sandboxes/{id}/logs", get(logs))
        .route("/atoll/v1/pools", get(pools::list))
        .route("/atoll/v1/pools/{name}", put(pools::set).delete(pools::remove))
        .route_layer(from_fn_with_state(app.clone(), require_key))
        .with_state(app)
}

/// An error in the words of the core.
struct NativeError(Error);

impl From<Error> for NativeError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for NativeError {
    fn into_response(self) -> Response {
        let (status, code) = match self.0.kind() {
            ErrorKind::Invalid => (StatusCode::BAD_REQUEST, "INVALID"),
            ErrorKind::Unauthenticated => (StatusCode::UNAUTHORIZED, "UNAUTHENTICATED"),
            ErrorKind::Forbidden => (StatusCode::FORBIDDEN, "FORBIDDEN"),
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "NOT_FOUND"),
            ErrorKind::Conflict => (StatusCode::CONFLICT, "CONFLICT"),
            ErrorKind::Exhausted => (StatusCode::TOO_MANY_REQUESTS, "EXHAUSTED"),
            ErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE"),
            ErrorKind::Unsupported => (StatusCode::NOT_IMPLEMENTED, "UNSUPPORTED"),
            ErrorKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL"),
        };
        let code = self.0.reason().unwrap_or(code);
        (status, Json(json!({"code": code, "message": self.0.message()}))).into_response()
    }
}

async fn require_key(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Result<Response, NativeError> {
    let tenant = app.keys.tenant(key_of(request.headers()), "OPEN-SANDBOX-API-KEY")?;
    request.extensions_mut().insert(tenant);
    Ok(next.run(request).await)
}

/// One key opens every door, in whichever header a client puts it.
fn key_of(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION.as_str()).and_then(|v| v.strip_prefix("Bearer "));
    text("open-sandbox-api-key").or_else(|| text("x-api-key")).or(bearer)
}

async fn show(
    State(app): State<App>,
    Extension(tenant): Extension<TenantId>,
    Path(id): Path<String>,
) -> Result<Json<Value>, NativeError> {
    let sandbox = app.control.get(&tenant, &parse(&id)?).await?;
    let mut shown = sandbox_json(&sandbox);
    shown["timeline"] = timeline_json(&sandbox);
    if let Some(diagnostic) = sandbox.life.diagnostic() {
        shown["diagnostic"] = json!({
            "reason": diagnostic.reason,
            "message": diagnostic.message,
            "recommendation": diagnostic.recommendation,
        });
    }
    Ok(Json(shown))
}

async fn logs(
    State(app): State<App>,
    Extension(tenant): Extension<TenantId>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, NativeError> {
    let bytes = tail(query.as_deref().unwrap_or_default())?;
    let found = app.control.logs(&tenant, &parse(&id)?, bytes).await?;
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, found.bytes).into_response())
}

/// `tail=` of a query: how many bytes of output, counted from the end.
fn tail(query: &str) -> Result<usize> {
    let Some(text) = query.split('&').find_map(|pair| pair.strip_prefix("tail=")) else {
        return Ok(LOG_BYTES_DEFAULT);
    };
    let bytes = text.parse().ok().filter(|bytes| (1..=LOG_BYTES_MAX).contains(bytes));
    bytes.ok_or_else(|| {
        Error::invalid("tail", format!("write a number of bytes from 1 to {LOG_BYTES_MAX}"))
    })
}

fn parse(id: &str) -> Result<SandboxId> {
    SandboxId::parse(id).map_err(|_| Error::not_found("this sandbox"))
}
