use atoll_guest::Error;
use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;
use std::error::Error as _;

/// Why a call failed; clients show the text as it is.
#[derive(Debug)]
pub(super) enum Failure {
    /// The body is not what it should be.
    Body(String),
    /// A choice excludes another one.
    Conflict(&'static str),
    /// There is no such context.
    NoContext(String),
    /// The sandbox could not do it.
    Guest(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Unknown { id, .. } => Self::NoContext(id),
            other => Self::Guest(other),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::Body(problem) => {
                let detail = json!({"type": "value_error", "loc": ["body"], "msg": problem});
                (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"detail": [detail]})))
                    .into_response()
            }
            Self::Conflict(text) => (StatusCode::BAD_REQUEST, text).into_response(),
            Self::NoContext(id) => {
                (StatusCode::NOT_FOUND, format!("Context {id} not found")).into_response()
            }
            // They happened inside the caller's own sandbox, so all may be told.
            Self::Guest(error) => {
                let source = error.source().map(|source| format!(": {source}"));
                let text = format!("{error}{}", source.unwrap_or_default());
                (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
            }
        }
    }
}
