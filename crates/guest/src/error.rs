use std::{io, path::PathBuf};

/// Why an operation inside the sandbox failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value of the request cannot be used; the message says how to mend it.
    #[error("{field}: {problem}")]
    Invalid {
        /// The member or parameter at fault.
        field: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// No command, session or terminal has this id (any more).
    #[error("there is no {kind} with id {id}")]
    Unknown {
        /// What was looked for.
        kind: &'static str,
        /// The id as given.
        id: String,
    },
    /// The thing exists but has already ended.
    #[error("{kind} {id} is not running")]
    NotRunning {
        /// What was addressed.
        kind: &'static str,
        /// Its id.
        id: String,
    },
    /// A path does not exist.
    #[error("{}: no such file or directory", path.display())]
    Missing {
        /// The path after expansion.
        path: PathBuf,
    },
    /// A path exists but is not of the kind the operation needs.
    #[error("{}: {problem}", path.display())]
    Unsuitable {
        /// The path after expansion.
        path: PathBuf,
        /// What it is and what was needed.
        problem: String,
    },
    /// A file operation failed in the kernel.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A system call that concerns no path failed.
    #[error("cannot {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A byte range lies outside the file.
    #[error("the range is outside the file of {size} bytes")]
    OutOfRange {
        /// The size of the file.
        size: u64,
    },
    /// A bounded registry is full.
    #[error("{what}: the limit of {limit} is reached; end or delete one first")]
    Full {
        /// What there are too many of.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// Another client holds the terminal.
    #[error("terminal {id} has a client already; attach with takeover to replace it")]
    Attached {
        /// The terminal's id.
        id: String,
    },
}

impl Error {
    /// Wraps a kernel error about a path, singling out "does not exist".
    pub fn file(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path },
            _ => Self::File { action, path, source },
        }
    }

    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }

    pub(crate) fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { field, problem: problem.into() }
    }
}
