//! What makes sandboxes real.

use async_trait::async_trait;
use atoll_control::{BoxedIo, LogTail, Port, Usage};
use atoll_core::lifecycle::Failure;
use atoll_core::{Action, Diagnostic, Error, Observed, Result, Sandbox, SandboxId, SnapshotId};
use tokio::sync::mpsc;

/// What a runtime can do, so that a request it can't meet is refused before it costs anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Freezing and thawing.
    pub pause: bool,
    /// Keeping files.
    pub snapshot: bool,
    /// Names of the launchers that work here, such as `native` or `runc`.
    pub isolation: Vec<String>,
}

/// Something happened to a sandbox: a hint to look, never the only source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// This was seen.
    Seen(SandboxId, Observed),
    /// Something worth a line in the timeline, such as the progress of a pull.
    Note(SandboxId, String),
}

/// Why an action didn't work, ready for the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeError(pub Failure);

impl RuntimeError {
    /// A failure that a repetition won't mend.
    pub fn permanent(reason: &str, message: &str, recommendation: &str) -> Self {
        let diagnostic = Diagnostic::new(reason, message, recommendation);
        Self(Failure { diagnostic, transient: false })
    }

    /// A failure that may pass.
    pub fn transient(reason: &str, message: &str, recommendation: &str) -> Self {
        let diagnostic = Diagnostic::new(reason, message, recommendation);
        Self(Failure { diagnostic, transient: true })
    }
}

impl std::fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.diagnostic.message)
    }
}

impl std::error::Error for RuntimeError {}

impl From<RuntimeError> for Error {
    fn from(error: RuntimeError) -> Self {
        Self::internal(error.0.diagnostic.message)
    }
}

/// Makes actions true.
///
/// # Guarantees
/// Every method is idempotent and may be repeated after a crash at any instruction: creating what
/// is there makes it what the record says and answers `Running`, removing what is gone answers
/// `Absent`. Methods for different
/// sandboxes may run at once; the engine sends at most one action per sandbox at a time.
/// A future of `apply` may be dropped at any await point (a creation that is no longer wanted):
/// what it left is then removed by `Remove`.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Refuses a sandbox that could never be made here (a mount that isn't allowed, an unknown
    /// launcher), before anything is stored.
    async fn check(&self, sandbox: &Sandbox) -> Result<()>;

    /// Makes `action` true for `sandbox` and tells what it then is. `Create` returns only when the
    /// agent has answered or the sandbox has exited. `Create` of what is there already makes it
    /// what the record says: stock of a warm pool becomes somebody's this way, known by another
    /// access token. Variables, user and folder are told to its agent; when the image, a mount, a
    /// limit or the entrypoint differs, it is replaced in place. `Pause` keeps what
    /// `sandbox.life.keep()` says, and a sandbox whose files alone were kept is seen as `Paused`.
    async fn apply(&self, sandbox: &Sandbox, action: Action) -> Result<Observed, RuntimeError>;

    /// Whether what is there has been told nothing but this record since it was made. Asked for
    /// stock after a restart: what may have been told a tenant's secrets is stock no more. A
    /// runtime that can't tell says no.
    async fn is_untouched(&self, _sandbox: &Sandbox) -> bool {
        false
    }

    /// What it is now.
    async fn observe(&self, id: &SandboxId) -> Result<Observed, RuntimeError>;

    /// Everything that is there, known to the engine or not: sandboxes, and half-made ones as
    /// `Absent`.
    async fn list(&self) -> Result<Vec<(SandboxId, Observed)>, RuntimeError>;

    /// Removes what `list` showed and no record knows.
    async fn remove_orphan(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    /// The stream of hints; the first caller gets it.
    fn events(&self) -> Option<mpsc::Receiver<Event>>;

    /// Opens a stream to a port. `Unavailable` with reason `PORT_CLOSED` when nothing listens.
    async fn connect(&self, id: &SandboxId, port: Port) -> Result<BoxedIo>;

    /// The newest output of the entrypoint; works for exited sandboxes until they are removed.
    async fn logs(&self, id: &SandboxId, bytes_max: usize) -> Result<LogTail>;

    /// What it uses.
    async fn usage(&self, id: &SandboxId) -> Result<Usage>;

    /// Keeps the files of a running sandbox under `snapshot`; all or nothing.
    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<(), RuntimeError>;

    /// The snapshots that are complete.
    async fn snapshots(&self) -> Result<Vec<SnapshotId>, RuntimeError>;

    /// Removes a snapshot; one that isn't there is fine. `Conflict` while a sandbox uses it.
    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<()>;
}
