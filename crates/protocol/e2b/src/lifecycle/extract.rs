//! Parts of a request, refused in this door's own words.

use std::time::Duration;

use atoll_core::SandboxId;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use bytes::Bytes;
use serde_json::Value;

use super::error::ApiError;
use super::form::Query;

/// A body of the API is small; one that takes longer only holds a connection.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// `{id}` of a path as a sandbox. What can't be an id names nothing.
pub(crate) struct PathSandbox(pub(crate) SandboxId);

/// `{id}` of a path as it is, decoded.
pub(crate) struct PathName(pub(crate) String);

/// The body as JSON; `None` when it is empty.
pub(crate) struct Body(pub(crate) Option<Value>);

impl Body {
    /// The body, which this route needs.
    pub(crate) fn required(self) -> Result<Value, ApiError> {
        self.0.ok_or_else(|| ApiError::invalid("body", "is required: send a JSON object"))
    }

    /// The body, or an empty object.
    pub(crate) fn or_empty(self) -> Value {
        self.0.unwrap_or_else(|| Value::Object(serde_json::Map::new()))
    }
}

/// One named part of the path, decoded.
pub(crate) async fn path_part(parts: &mut Parts, name: &str) -> String {
    let params = RawPathParams::from_request_parts(parts, &()).await;
    let found = params.ok().and_then(|params| {
        params.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    });
    found.unwrap_or_default()
}

/// Reads a sandbox id; clients of old append `-<anything>` to it.
pub(crate) fn sandbox_id(text: &str) -> Option<SandboxId> {
    SandboxId::parse(text.split('-').next().unwrap_or_default()).ok()
}

/// The answer about a sandbox that isn't there for this caller.
pub(crate) fn no_sandbox(shown: &str) -> ApiError {
    let shown: String = shown.chars().filter(|c| !c.is_control()).take(64).collect();
    ApiError::not_found(format!("sandbox {shown:?} doesn't exist or you don't have access to it"))
}

impl<S: Send + Sync> FromRequestParts<S> for PathSandbox {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let text = path_part(parts, "id").await;
        sandbox_id(&text).map(Self).ok_or_else(|| no_sandbox(&text))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(path_part(parts, "id").await))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self::parse(parts.uri.query()))
    }
}

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let reading = tokio::time::timeout(BODY_TIME_MAX, Bytes::from_request(request, state));
        let read = reading.await.map_err(|_| {
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "body: did not arrive in time")
        })?;
        let bytes = read.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                ApiError::invalid("body", "is too large for this route")
            } else {
                ApiError::invalid("body", "broke off before its end")
            }
        })?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self(None));
        }
        serde_json::from_slice(&bytes)
            .map(|value| Self(Some(value)))
            .map_err(|error| ApiError::invalid("body", format!("is no JSON: {error}")))
    }
}
