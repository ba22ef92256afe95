//! Why a verb did not work, and what to do about it.

use std::io::ErrorKind;
use std::process::ExitCode;

/// Every way in which a verb can fail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The server did not answer.
    #[error("can't reach {url}")]
    Unreachable {
        /// Where we asked.
        url: String,
        /// Why not.
        source: reqwest::Error,
    },
    /// The server refused.
    #[error("{message} ({code})")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The server's code.
        code: String,
        /// The server's words.
        message: String,
    },
    /// The answer makes no sense.
    #[error("the server's answer to {request} can't be understood: {why}")]
    Garbled {
        /// What we asked.
        request: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// A stream ended before its end.
    #[error("the connection broke before the command ended")]
    CutOff,
    /// What was typed is wrong.
    #[error("{0}")]
    Usage(String),
    /// A sandbox did not become what was wished.
    #[error("sandbox {id} is {state}: {message}")]
    Sandbox {
        /// Which one.
        id: String,
        /// What it is instead.
        state: String,
        /// Why.
        message: String,
    },
    /// A file here.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: String,
        /// What is wrong.
        source: std::io::Error,
    },
    /// Our own output.
    #[error("can't write the output: {0}")]
    Output(std::io::Error),
    /// Ctrl-C can't be watched for.
    #[error("can't watch for signals: {0}")]
    Signals(std::io::Error),
    /// The server can't run.
    #[error(transparent)]
    Serve(#[from] atoll_server::ServeError),
    /// Several of the things asked for failed; each was reported.
    #[error("{failed} of {asked} failed")]
    Some {
        /// How many failed.
        failed: usize,
        /// How many were asked for.
        asked: usize,
    },
}

impl Error {
    /// Tells the person, and turns into an exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if self.is_broken_pipe() {
            // The reader has seen enough, as in `atoll ls | head -1`.
            return ExitCode::SUCCESS;
        }
        self.print();
        match self {
            Self::Usage(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    /// The message with its causes, and a hint.
    pub(crate) fn print(&self) {
        eprintln!("error: {}", self.chain());
        if let Some(hint) = self.hint() {
            eprintln!("hint: {hint}");
        }
    }

    /// Fine when the reader has gone.
    pub(crate) fn unless_broken_pipe(self) -> Result<(), Self> {
        if self.is_broken_pipe() { Ok(()) } else { Err(self) }
    }

    fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == ErrorKind::BrokenPipe)
    }

    fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            let words = error.to_string();
            // Some libraries repeat their cause in their own words.
            if !text.contains(&words) {
                text.push_str(&format!(": {words}"));
            }
            source = error.source();
        }
        text
    }

    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } => {
                Some("start a server with `atoll serve`, or name one with --url or ATOLL_URL")
            }
            Self::Refused { status: 401 | 403, .. } => Some(
                "give the key that the server printed at its start with --api-key or \
                 ATOLL_API_KEY, or name its data folder with --data-dir",
            ),
            Self::Refused { status: 404, code, .. } if code.ends_with("SANDBOX_NOT_FOUND") => {
                Some("`atoll ls` shows the sandboxes of this key")
            }
            Self::Refused { status: 405, .. } | Self::Garbled { .. } => {
                Some("is this an Atoll server of the same version? `atoll --version`")
            }
            Self::Refused { status: 409, .. } => Some("`atoll get ID` shows its state and why"),
            Self::Sandbox { .. } => Some("`atoll get ID` shows its timeline"),
            Self::CutOff => Some("`atoll get ID` tells whether the sandbox still runs"),
            Self::Refused { .. }
            | Self::Usage(_)
            | Self::File { .. }
            | Self::Output(_)
            | Self::Signals(_)
            | Self::Serve(_)
            | Self::Some { .. } => None,
        }
    }
}
