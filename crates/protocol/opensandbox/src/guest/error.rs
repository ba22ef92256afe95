use atoll_guest::Error;
use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use std::error::Error as _;

/// The contract's error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Code {
    InvalidRequestBody,
    MissingQuery,
    RuntimeError,
    InvalidFile,
    InvalidFileContent,
    InvalidFileMetadata,
    FileNotFound,
    Unknown,
    ContextNotFound,
    NotSupported,
    SessionGone,
    AlreadyConnected,
}

/// An answer that is an error: `{"code","message"}` with its status.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) code: Code,
    pub(super) message: String,
}

#[derive(Serialize)]
struct Body {
    code: Code,
    message: String,
}

impl Failure {
    pub(super) fn new(status: StatusCode, code: Code, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Code::InvalidRequestBody, message)
    }

    pub(super) fn missing_query(name: &str) -> Self {
        let message = format!("the query parameter {name:?} is missing; add {name}=…");
        Self::new(StatusCode::BAD_REQUEST, Code::MissingQuery, message)
    }

    /// The same failure under another status, where one route differs from the rest.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (status, code) = match &error {
            Error::Invalid { .. } => (StatusCode::BAD_REQUEST, Code::InvalidRequestBody),
            Error::Unknown { kind: "terminal", .. } => (StatusCode::NOT_FOUND, Code::SessionGone),
            Error::Unknown { .. } => (StatusCode::NOT_FOUND, Code::ContextNotFound),
            Error::Missing { .. } => (StatusCode::NOT_FOUND, Code::FileNotFound),
            Error::OutOfRange { .. } => (StatusCode::RANGE_NOT_SATISFIABLE, Code::InvalidFile),
            Error::Full { .. } => (StatusCode::SERVICE_UNAVAILABLE, Code::RuntimeError),
            Error::Attached { .. } => (StatusCode::CONFLICT, Code::AlreadyConnected),
            Error::NotRunning { .. }
            | Error::Unsuitable { .. }
            | Error::File { .. }
            | Error::System { .. } => (StatusCode::INTERNAL_SERVER_ERROR, Code::RuntimeError),
        };
        Self::new(status, code, told(&error))
    }
}

/// The error with its causes: they happened inside the caller's own sandbox, so all may be told.
fn told(error: &Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = Body { code: self.code, message: self.message };
        (self.status, Json(body)).into_response()
    }
}
