//! Every failure of this door: its status, its code, its words.
//!
//! A body always has `code` and `message`, because the SDKs read both. Schema failures (422) and
//! unknown routes carry the reference server's `detail` beside them.

use std::borrow::Cow;

use atoll_core::{Error, ErrorKind, Sandbox};
use atoll_proxy::ProxyError;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

/// Problems listed in one answer; more would only repeat themselves.
const PROBLEMS_MAX: usize = 32;

/// An answer that is no success.
#[derive(Clone, Debug)]
pub struct ApiError {
    status: StatusCode,
    code: Cow<'static, str>,
    message: String,
    detail: Option<Value>,
    retry_after_seconds: Option<u32>,
}

/// One member of a request that doesn't fit the schema.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    kind: &'static str,
    loc: Vec<Value>,
    message: String,
    input: Option<Value>,
}

/// What was being done; some codes depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Create,
    Read,
    Pause,
    Resume,
    Renew,
    TakeSnapshot,
    ReadSnapshot,
    DeleteSnapshot,
}

impl ApiError {
    /// An answer of `status` with a stable `code` and words for a person.
    pub fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            code: code.into(),
            message: message.into(),
            detail: None,
            retry_after_seconds: None,
        }
    }

    /// A value that the schema allows and this server doesn't.
    pub(crate) fn invalid(field: &str, problem: impl std::fmt::Display) -> Self {
        Self::bad_request("SANDBOX::INVALID_PARAMETER", format!("{field}: {problem}"))
    }

    /// A feature of the contract that this server doesn't have.
    pub(crate) fn unsupported(field: &str, problem: &str) -> Self {
        Self::bad_request("SANDBOX::API_NOT_SUPPORTED", format!("{field}: {problem}"))
    }

    /// 400 with a code.
    pub(crate) fn bad_request(code: impl Into<Cow<'static, str>>, message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// 422 listing what doesn't fit.
    pub(crate) fn unprocessable(mut problems: Vec<Problem>) -> Self {
        problems.truncate(PROBLEMS_MAX);
        let message = problems.iter().map(Problem::sentence).collect::<Vec<_>>().join("; ");
        let detail = problems.into_iter().map(Problem::into_json).collect();
        let error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "VALIDATION_ERROR", message);
        Self { detail: Some(detail), ..error }
    }

    /// The answer to a failure of `Control` while `doing` something.
    pub(crate) fn from_control(doing: Doing, error: &Error) -> Self {
        let (status, code) = table(doing, error);
        let retry_after_seconds = match error.kind() {
            ErrorKind::Exhausted | ErrorKind::Unavailable => Some(1),
            ErrorKind::Invalid
            | ErrorKind::Unauthenticated
            | ErrorKind::Forbidden
            | ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::Unsupported
            | ErrorKind::Internal => None,
        };
        Self { retry_after_seconds, ..Self::new(status, code, error.message()) }
    }

    /// The answer to a creation whose sandbox did not come up.
    pub(crate) fn start_failed(sandbox: &Sandbox) -> Self {
        let is_pull = sandbox.life.diagnostic().is_some_and(|d| d.reason.starts_with("IMAGE_"));
        let code = if is_pull {
            "DOCKER::SANDBOX_IMAGE_PULL_FAILED"
        } else {
            "DOCKER::SANDBOX_START_FAILED"
        };
        Self::not_done(sandbox, code, "started")
    }

    /// The answer to a pause that did not happen.
    pub(crate) fn pause_failed(sandbox: &Sandbox) -> Self {
        Self::not_done(sandbox, "DOCKER::SANDBOX_PAUSE_FAILED", "paused")
    }

    /// The answer to a resumption that did not happen.
    pub(crate) fn resume_failed(sandbox: &Sandbox) -> Self {
        Self::not_done(sandbox, "DOCKER::SANDBOX_RESUME_FAILED", "resumed")
    }

    fn not_done(sandbox: &Sandbox, code: &'static str, done: &str) -> Self {
        let why = sandbox.life.diagnostic().map_or_else(String::new, |diagnostic| {
            format!(": {}; {}", diagnostic.message, diagnostic.recommendation)
        });
        let message = format!("sandbox {} could not be {done}{why}", sandbox.id);
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, message)
    }

    /// The status it is answered with.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What it says.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Its stable code.
    pub fn code(&self) -> &str {
        &self.code
    }
}

fn table(doing: Doing, error: &Error) -> (StatusCode, Cow<'static, str>) {
    if let Some(code) = volume_code(error) {
        return (StatusCode::BAD_REQUEST, code);
    }
    let code = match (error.kind(), doing) {
        (ErrorKind::Invalid, _) => "SANDBOX::INVALID_PARAMETER",
        (ErrorKind::Unauthenticated, _) => error.reason().unwrap_or("INVALID_API_KEY"),
        (ErrorKind::Forbidden, _) => "SANDBOX::FORBIDDEN",
        (ErrorKind::NotFound, Doing::Create | Doing::ReadSnapshot | Doing::DeleteSnapshot) => {
            "SNAPSHOT::NOT_FOUND"
        }
        (ErrorKind::NotFound, _) => "DOCKER::SANDBOX_NOT_FOUND",
        (ErrorKind::Conflict, Doing::Create) => "SNAPSHOT::NOT_READY",
        (ErrorKind::Conflict, Doing::Resume) => "DOCKER::SANDBOX_NOT_PAUSED",
        (ErrorKind::Conflict, Doing::Renew) => "DOCKER::INVALID_EXPIRATION",
        (ErrorKind::Conflict, Doing::TakeSnapshot) => "SNAPSHOT::INVALID_SOURCE_STATE",
        (ErrorKind::Conflict, Doing::DeleteSnapshot) => "SNAPSHOT::DELETE_CONFLICT",
        (ErrorKind::Conflict, Doing::Pause | Doing::Read | Doing::ReadSnapshot) => {
            "DOCKER::SANDBOX_NOT_RUNNING"
        }
        (ErrorKind::Exhausted, _) => "SANDBOX::QUOTA_EXCEEDED",
        (ErrorKind::Unavailable, _) => "SANDBOX::UNAVAILABLE",
        (
            ErrorKind::Unsupported,
            Doing::TakeSnapshot | Doing::ReadSnapshot | Doing::DeleteSnapshot,
        ) => "SNAPSHOT::NOT_IMPLEMENTED",
        (ErrorKind::Unsupported, _) => "SANDBOX::API_NOT_SUPPORTED",
        (ErrorKind::Internal, _) => "GENERAL::UNKNOWN_ERROR",
    };
    (status(doing, error.kind()), code.into())
}

fn status(doing: Doing, kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Unsupported if doing == Doing::Create => StatusCode::BAD_REQUEST,
        ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A runtime's `VOLUME_X` is this contract's `VOLUME::X`, a mistake in the request whatever its
/// kind.
fn volume_code(error: &Error) -> Option<Cow<'static, str>> {
    let rest = error.reason()?.strip_prefix("VOLUME_")?;
    Some(format!("VOLUME::{rest}").into())
}

impl From<ProxyError> for ApiError {
    fn from(error: ProxyError) -> Self {
        match &error {
            ProxyError::Refused(refused) => match refused.reason() {
                Some(reason @ ("SANDBOX_PAUSED" | "SANDBOX_NOT_RUNNING")) => {
                    Self::new(StatusCode::CONFLICT, reason, refused.message())
                }
                Some(_) | None => Self::from_control(Doing::Read, refused),
            },
            ProxyError::Closed(closed) => Self::new(
                StatusCode::BAD_GATEWAY,
                "BACKEND_CONNECTION_FAILED",
                format!("nothing could be reached on this port of the sandbox: {closed}"),
            ),
            ProxyError::ConnectTimeout(_) => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, "BACKEND_TIMEOUT", error.to_string())
            }
            ProxyError::BadAnswer(_) => {
                Self::new(StatusCode::BAD_GATEWAY, "BACKEND_RESPONSE_FAILED", error.to_string())
            }
            ProxyError::BrokenRequest(_) => {
                Self::bad_request("REQUEST_BROKEN_OFF", error.to_string())
            }
            ProxyError::BadTarget(_) => Self::invalid("path", error.to_string()),
        }
    }
}

impl Problem {
    /// What is wrong at `loc`; `kind` is the reference server's word for it.
    pub(crate) fn new<'a>(
        loc: impl IntoIterator<Item = &'a str>,
        kind: &'static str,
        message: String,
    ) -> Self {
        Self::at(loc.into_iter().map(Value::from).collect(), kind, message)
    }

    /// The same for a path that holds positions.
    pub(crate) fn at(loc: Vec<Value>, kind: &'static str, message: String) -> Self {
        Self { kind, loc, message, input: None }
    }

    /// Shows what was sent, unless that is large.
    pub(crate) fn with_input(self, input: Value) -> Self {
        let small = !input.is_array() && !input.is_object() && input.to_string().len() <= 200;
        Self { input: small.then_some(input), ..self }
    }

    fn sentence(&self) -> String {
        let path: Vec<_> = self
            .loc
            .iter()
            .map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned))
            .collect();
        format!("{}: {}", path.join("."), self.message)
    }

    fn into_json(self) -> Value {
        let mut object = Map::new();
        object.insert("type".into(), self.kind.into());
        object.insert("loc".into(), self.loc.into());
        object.insert("msg".into(), self.message.into());
        if let Some(input) = self.input {
            object.insert("input".into(), input);
        }
        object.into()
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self::unprocessable(vec![problem])
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut body = json!({"code": self.code, "message": self.message});
        if let Some(detail) = self.detail {
            body["detail"] = detail;
        }
        let mut response = (self.status, Json(body)).into_response();
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// A path that no route has.
pub(crate) async fn no_route() -> ApiError {
    let error = ApiError::new(
        StatusCode::NOT_FOUND,
        "NOT_FOUND",
        "there is no such route; this door's paths begin with /v1/sandboxes or /v1/snapshots",
    );
    ApiError { detail: Some("Not Found".into()), ..error }
}

/// A route that exists for other methods.
pub(crate) async fn wrong_method() -> ApiError {
    let error = ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        "this route exists, but not for this method",
    );
    ApiError { detail: Some("Method Not Allowed".into()), ..error }
}
