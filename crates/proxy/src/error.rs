//! Why a request could not be carried.

use atoll_core::{Error, ErrorKind};

use crate::link::SendError;

/// What went wrong between us and the port of a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The sandbox is unknown to this caller, or not in a state to be reached.
    #[error("{0}")]
    Refused(#[source] Error),
    /// Nothing listens on that port inside the sandbox.
    #[error("nothing listens on this port of the sandbox: {0}")]
    Closed(#[source] Error),
    /// No stream to the port could be opened in time.
    #[error("the sandbox did not accept a connection within {0:?}")]
    ConnectTimeout(std::time::Duration),
    /// The stream broke, or what came back is not HTTP.
    #[error("the service inside the sandbox broke off or did not answer in HTTP")]
    BadAnswer(#[source] hyper::Error),
    /// The client broke off before its request was whole.
    #[error("the request's body broke off before its announced end")]
    BrokenRequest(#[source] axum::Error),
    /// The path asked for can't be written in a request line.
    #[error("the path can't be forwarded")]
    BadTarget(#[source] http::Error),
}

impl ProxyError {
    /// Sorts an answer of `Control::connect`.
    pub(crate) fn connecting(error: Error) -> Self {
        if error.kind() == ErrorKind::Unavailable {
            Self::Closed(error)
        } else {
            Self::Refused(error)
        }
    }
}

impl From<SendError> for ProxyError {
    fn from(error: SendError) -> Self {
        Self::BadAnswer(error.error)
    }
}
