//! Errors of the plain HTTP routes: `{"code": <status>, "message"}`.

use super::{
    connect::{Code, Failure, told},
    path::PathError,
};
use atoll_guest::Error;
use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use std::io::ErrorKind;

/// An answer that is an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

#[derive(Serialize)]
struct Body {
    code: u16,
    message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Invalid { .. } | Error::Unsuitable { .. } => StatusCode::BAD_REQUEST,
            Error::Missing { .. } | Error::Unknown { .. } => StatusCode::NOT_FOUND,
            Error::OutOfRange { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
            Error::Full { .. } => StatusCode::TOO_MANY_REQUESTS,
            Error::NotRunning { .. } | Error::Attached { .. } => StatusCode::CONFLICT,
            Error::File { source, .. } | Error::System { source, .. } => match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    StatusCode::INSUFFICIENT_STORAGE
                }
                ErrorKind::NotADirectory | ErrorKind::InvalidFilename => StatusCode::BAD_REQUEST,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        };
        Self::new(status, told(&error))
    }
}

impl From<PathError> for Refusal {
    fn from(error: PathError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// Who calls is found out in the same way everywhere; only its failure is told differently.
impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let status = match failure.code {
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, failure.message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = Body { code: self.status.as_u16(), message: self.message };
        (self.status, Json(body)).into_response()
    }
}
