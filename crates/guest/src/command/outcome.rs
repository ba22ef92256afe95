use crate::Error;
use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The exit code; -1 when a signal ended it.
    pub code: i32,
    /// Why it did not end well by itself: signal, timeout, or a program that could not be run.
    pub problem: Option<String>,
    /// The kernel's word on its end; nothing when there was no process, or a shell reported.
    pub status: Option<ExitStatus>,
    /// It was killed because its time was over.
    pub expired: bool,
    /// How long it ran.
    pub elapsed: Duration,
}

impl Outcome {
    pub(crate) fn of_exit(
        status: ExitStatus,
        expired: Option<Duration>,
        elapsed: Duration,
    ) -> Self {
        let problem = match (expired, status.signal()) {
            (Some(limit), _) => Some(format!("timed out after {} ms", limit.as_millis())),
            (None, Some(signal)) => Some(format!("killed by signal {signal}")),
            (None, None) => None,
        };
        // A command that was killed for its time must not look like a success of the last moment.
        let code = if expired.is_some() { -1 } else { status.code().unwrap_or(-1) };
        Self { code, problem, status: Some(status), expired: expired.is_some(), elapsed }
    }

    /// An end that a shell reported by itself.
    pub(crate) fn of_code(code: i32, elapsed: Duration) -> Self {
        Self { code, problem: None, status: None, expired: false, elapsed }
    }

    /// What a shell would report for a program that cannot be executed.
    pub(crate) fn of_refusal(error: &Error, elapsed: Duration) -> Self {
        let (code, problem) = match error {
            Error::Missing { path } => (127, format!("{}: command not found", path.display())),
            Error::File { source, .. } => (126, format!("{error}: {source}")),
            other => (126, other.to_string()),
        };
        Self { code, problem: Some(problem), status: None, expired: false, elapsed }
    }
}
