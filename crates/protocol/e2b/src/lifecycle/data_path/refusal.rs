//! Why a request did not get into a sandbox, in the words that clients look for.

use atoll_core::ErrorKind;
use atoll_proxy::ProxyError;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::target::Entry;

/// A request that goes no further.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    /// There is no such sandbox, or it doesn't run.
    NoSandbox(String),
    /// Nothing listens there.
    Closed { id: String, port: u16 },
    /// What listens there doesn't speak HTTP, or broke off.
    Broken { id: String, port: u16 },
    /// The token or signature is missing or wrong.
    Unauthorized(&'static str),
    /// The sandbox takes no public traffic.
    NotPublic(String),
    /// A route that is not for clients.
    Internal,
    /// A limit is reached.
    Exhausted { id: String, message: String },
    /// The request itself can't be carried.
    Bad(String),
}

impl Refusal {
    pub(super) fn from_proxy(entry: &Entry, error: &ProxyError) -> Self {
        let (id, port) = (entry.shown.clone(), entry.port);
        match error {
            ProxyError::Refused(error) if error.kind() == ErrorKind::Exhausted => {
                Self::Exhausted { id, message: error.message().to_owned() }
            }
            ProxyError::Refused(_) => Self::NoSandbox(id),
            ProxyError::Closed(_) | ProxyError::ConnectTimeout(_) => Self::Closed { id, port },
            ProxyError::BadAnswer(_) => Self::Broken { id, port },
            ProxyError::BrokenRequest(_) | ProxyError::BadTarget(_) => Self::Bad(error.to_string()),
        }
    }

    fn answer(self) -> (StatusCode, Value) {
        let gateway = StatusCode::BAD_GATEWAY;
        match self {
            Self::NoSandbox(id) => {
                (gateway, json!({"sandboxId": id, "message": "The sandbox was not found"}))
            }
            Self::Closed { id, port } => {
                let message = "The sandbox is running but port is not open";
                (gateway, json!({"sandboxId": id, "message": message, "port": port}))
            }
            Self::Broken { id, port } => {
                let message = "The sandbox is running but what listens on this port broke off or \
                               did not answer in HTTP";
                (gateway, json!({"sandboxId": id, "message": message, "port": port}))
            }
            Self::Unauthorized(message) => (StatusCode::UNAUTHORIZED, json!({"message": message})),
            Self::NotPublic(id) => {
                let message = "This sandbox takes no public traffic: send its trafficAccessToken, \
                               which creating it and connecting to it tell, in the header \
                               e2b-traffic-access-token";
                (StatusCode::FORBIDDEN, json!({"sandboxId": id, "message": message}))
            }
            Self::Internal => {
                (StatusCode::NOT_FOUND, json!({"message": "this route is not for clients"}))
            }
            Self::Exhausted { id, message } => {
                (StatusCode::TOO_MANY_REQUESTS, json!({"sandboxId": id, "message": message}))
            }
            Self::Bad(message) => (StatusCode::BAD_REQUEST, json!({"message": message})),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, mut body) = self.answer();
        body["code"] = status.as_u16().into();
        let headers = [(header::CONTENT_TYPE, "application/json; charset=utf-8")];
        (status, headers, body.to_string()).into_response()
    }
}
