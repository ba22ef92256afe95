use atoll_guest::Error;
use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use std::{error::Error as _, io::ErrorKind, time::Duration};

/// The protocol's error codes that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    OutOfRange,
    Unimplemented,
    Internal,
    Unauthenticated,
}

impl Code {
    /// The status of a unary answer.
    fn status(self) -> StatusCode {
        match self {
            Self::Unknown | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::InvalidArgument | Self::FailedPrecondition | Self::OutOfRange => {
                StatusCode::BAD_REQUEST
            }
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
        }
    }
}

/// An answer that is an error: in a body of its own, or as the end of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// Where HTTP has its own word for it.
    #[serde(skip)]
    status: Option<u16>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), status: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status: Some(status.as_u16()), ..self }
    }

    pub(crate) fn deadline(time: Duration) -> Self {
        let message = format!("not done within the {} ms that were allowed", time.as_millis());
        Self::new(Code::DeadlineExceeded, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Invalid { .. } | Error::Unsuitable { .. } => Code::InvalidArgument,
            Error::Unknown { .. } | Error::NotRunning { .. } | Error::Missing { .. } => {
                Code::NotFound
            }
            Error::OutOfRange { .. } => Code::OutOfRange,
            Error::Full { .. } => Code::ResourceExhausted,
            Error::Attached { .. } => Code::FailedPrecondition,
            Error::File { source, .. } | Error::System { source, .. } => match source.kind() {
                ErrorKind::PermissionDenied => Code::PermissionDenied,
                ErrorKind::NotADirectory | ErrorKind::InvalidFilename => Code::InvalidArgument,
                _ => Code::Internal,
            },
        };
        Self::new(code, told(&error))
    }
}

/// The error with its causes: they happened inside the caller's own sandbox, so all may be told.
pub(crate) fn told(error: &Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let own = self.status.and_then(|status| StatusCode::from_u16(status).ok());
        (own.unwrap_or_else(|| self.code.status()), Json(self)).into_response()
    }
}
