//! Every failure of the control API: its status and its words.
//!
//! A body always is `{"code": <number>, "message": <text>}`, because the SDKs read both and fail
//! in a confusing way without.

use atoll_core::{Error, ErrorKind, Sandbox};
use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Tells SDKs whether to send the same request again by themselves.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("should-retry");

/// An answer that is no success.
#[derive(Clone, Debug)]
pub struct ApiError {
    status: StatusCode,
    message: String,
    error_code: Option<&'static str>,
    final_answer: bool,
}

impl ApiError {
    /// An error that says `message`.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), error_code: None, final_answer: false }
    }

    /// A request whose `field` is wrong; `problem` says how and what to write instead.
    pub fn invalid(field: &str, problem: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, format!("{field}: {problem}"))
    }

    /// Something of the contract that this server doesn't do.
    pub fn unsupported(field: &str, reason: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            format!("{field}: not supported by this server: {reason}"),
        )
    }

    /// Nothing of that name is there for this caller.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// Right request, wrong moment.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// The same error with the contract's word for it.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.error_code = Some(code);
        self
    }

    /// The same error; an SDK must not try again by itself.
    #[must_use]
    pub fn not_again(mut self) -> Self {
        self.final_answer = true;
        self
    }

    /// The answer to a creation that was not accepted.
    pub(crate) fn not_accepted(error: Error) -> Self {
        let about_volume = error.reason().is_some_and(|reason| reason.starts_with("VOLUME_"));
        let answer = Self::from(error);
        // A volume that can't be had is a mistake in the request, whatever its kind.
        let status = if about_volume { StatusCode::BAD_REQUEST } else { answer.status };
        Self { status, ..answer }
    }

    /// The answer to a creation whose sandbox did not come up.
    pub(crate) fn start_failed(sandbox: &Sandbox) -> Self {
        let (status, code) = match sandbox.life.diagnostic().map(|d| d.reason.as_str()) {
            // The caller named an image that can't be had; only the caller can change that.
            Some("IMAGE_NOT_FOUND" | "IMAGE_PULL_UNAUTHORIZED" | "IMAGE_INVALID") => {
                (StatusCode::BAD_REQUEST, "sandbox_image_unavailable")
            }
            Some("IMAGE_NO_SPACE") => {
                (StatusCode::SERVICE_UNAVAILABLE, "sandbox_capacity_unavailable")
            }
            Some(_) | None => (StatusCode::INTERNAL_SERVER_ERROR, "sandbox_create_failed"),
        };
        Self::not_done(sandbox, status, "created").with_code(code).not_again()
    }

    /// The answer to a change of state that did not happen.
    pub(crate) fn not_done(sandbox: &Sandbox, status: StatusCode, done: &str) -> Self {
        let why = sandbox.life.diagnostic().map_or_else(String::new, |d| {
            format!(": {}: {}; {}", d.reason, d.message, d.recommendation)
        });
        Self::new(status, format!("sandbox {} could not be {done}{why}", sandbox.id))
    }

    /// The status it is answered with.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What it says.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Its body.
    pub fn body(&self) -> Value {
        let mut body = json!({"code": self.status.as_u16(), "message": self.message});
        if let Some(code) = self.error_code {
            body["error_code"] = code.into();
        }
        body
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => StatusCode::BAD_REQUEST,
            ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let answer = Self::new(status, error.message());
        match error.reason() {
            // For SDKs 429 is a limit of the caller's, 503 a busy server; and this one has waited
            // for stock already, so that trying again at once is of no use.
            Some("NO_STOCK") => Self { status: StatusCode::SERVICE_UNAVAILABLE, ..answer }
                .with_code("sandbox_capacity_unavailable")
                .not_again(),
            Some("TEMPLATE_BUILDING") => answer.with_code("template_building"),
            Some(_) | None => answer,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if self.final_answer {
            response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}

/// A path that no route has, in this door's form.
pub async fn no_route() -> ApiError {
    ApiError::not_found("there is no such route")
}

/// A route that exists for other methods, in this door's form.
pub async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this route exists, but not for this method")
}
