//! One error for the whole product; every door has one table from its kinds to its own codes.

use std::fmt;

/// What the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is wrong; sending it again won't help.
    Invalid,
    /// No credential, or one we don't know.
    Unauthenticated,
    /// A known caller without the right.
    Forbidden,
    /// Nothing of that name is visible to this caller.
    NotFound,
    /// Right request, wrong moment: the state doesn't allow it.
    Conflict,
    /// A limit is reached; it may free up.
    Exhausted,
    /// Something we depend on doesn't answer; try again.
    Unavailable,
    /// This installation can't do that.
    Unsupported,
    /// A fault of ours.
    Internal,
}

impl ErrorKind {
    /// All kinds, for tables that must be complete.
    pub const ALL: [Self; 9] = [
        Self::Invalid,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::Conflict,
        Self::Exhausted,
        Self::Unavailable,
        Self::Unsupported,
        Self::Internal,
    ];
}

/// A failure in words a caller may read, with an optional stable reason for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    /// Stable upper-case word such as `IMAGE_PULL_FAILED`; doors map some of them to own codes.
    reason: Option<&'static str>,
    message: String,
}

/// Result with our [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` saying `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, reason: None, message: message.into() }
    }

    /// A request whose `field` is wrong; `problem` says how and what to write instead.
    pub fn invalid(field: &str, problem: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Invalid, format!("{field}: {problem}"))
    }

    /// `what` (such as "sandbox abc") does not exist for this caller.
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::NotFound, format!("{what} does not exist"))
    }

    /// The state doesn't allow it.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// This installation can't do that.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Something we depend on doesn't answer.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// A fault of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// The same error with a stable reason.
    #[must_use]
    pub fn with_reason(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Stable reason, if there is one.
    pub fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// What happened, for the caller to read.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
