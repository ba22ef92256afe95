//! Parts of a request, refused in this door's own words.

use std::time::Duration;

use atoll_core::{SandboxId, SnapshotId};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use bytes::Bytes;
use serde_json::Value;

use super::error::{ApiError, Doing, Problem};
use super::form::Query;

/// A body of the API is small; one that takes longer only holds a connection.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// `{id}` of a path as a sandbox. What can't be an id names nothing.
pub(crate) struct PathSandbox(pub(crate) SandboxId);

/// `{id}` of a path as a snapshot.
pub(crate) struct PathSnapshot(pub(crate) SnapshotId);

/// `{port}` of a path.
pub(crate) struct PathPort(pub(crate) u16);

/// The body as JSON; `None` when it is empty.
pub(crate) struct Body(pub(crate) Option<Value>);

impl Body {
    /// The body, which this route needs.
    pub(crate) fn required(self) -> Result<Value, ApiError> {
        self.0.ok_or_else(|| {
            Problem::new(["body"], "missing", "Field required: send a JSON object".into()).into()
        })
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

/// Reads a port as a path gives it.
pub(crate) fn port(text: &str) -> Result<u16, ApiError> {
    let number: i64 = text.parse().map_err(|_| {
        Problem::new(["path", "port"], "int_parsing", "Input should be a valid integer".into())
            .with_input(text.into())
    })?;
    u16::try_from(number).ok().filter(|port| *port != 0).ok_or_else(|| {
        let message = format!("port: {number} is no port; ports go from 1 to 65535");
        ApiError::bad_request("DOCKER::INVALID_PORT", message)
    })
}

/// Reads a sandbox id; what can't be one is not found.
pub(crate) fn sandbox_id(text: &str) -> Result<SandboxId, ApiError> {
    SandboxId::parse(text).map_err(|_| {
        let shown: String = text.chars().filter(|c| !c.is_control()).take(64).collect();
        let error = atoll_core::Error::not_found(format_args!("sandbox {shown}"));
        ApiError::from_control(Doing::Read, &error)
    })
}

impl<S: Send + Sync> FromRequestParts<S> for PathSandbox {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        sandbox_id(&path_part(parts, "id").await).map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathSnapshot {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        SnapshotId::parse(&path_part(parts, "id").await).map(Self).map_err(|_| {
            let error = atoll_core::Error::not_found("this snapshot");
            ApiError::from_control(Doing::ReadSnapshot, &error)
        })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathPort {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        port(&path_part(parts, "port").await).map(Self)
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
            let message = "the body did not arrive in time";
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "BODY_TIMEOUT", message)
        })?;
        let bytes = read.map_err(|rejection| {
            let status = rejection.status();
            if status == StatusCode::PAYLOAD_TOO_LARGE {
                let message = "the body is too large for this route";
                ApiError::new(status, "PAYLOAD_TOO_LARGE", message)
            } else {
                ApiError::new(status, "BODY_INCOMPLETE", "the body broke off before its end")
            }
        })?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self(None));
        }
        serde_json::from_slice(&bytes).map(|value| Self(Some(value))).map_err(|error| {
            let message = format!("JSON decode error: {error}");
            Problem::new(["body"], "json_invalid", message).into()
        })
    }
}
