//! The whole product as one trait; every door is a translation to it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use atoll_core::{
    Aging, Deadline, Keep, Result, Sandbox, SandboxId, Snapshot, SnapshotId, TenantId, Timestamp,
};

use crate::access::{Access, Port};
use crate::io::BoxedIo;
use crate::query::{Create, Filter, MetadataPatch, Page, Paging, SnapshotFilter};

/// The newest part of a sandbox's log.
#[derive(Clone, Debug, Default)]
pub struct LogTail {
    /// The bytes as they were printed; hostile, as everything from inside.
    pub bytes: Vec<u8>,
    /// Older output existed and is gone.
    pub truncated: bool,
}

/// What a sandbox uses right now, as its walls count it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time used since start.
    pub cpu: Duration,
    /// Bytes of memory charged to it.
    pub memory_bytes: u64,
    /// Of these, file pages that the kernel could take back.
    pub cache_bytes: u64,
    /// The most memory it may use; zero when nothing bounds it.
    pub memory_limit_bytes: u64,
    /// Thousandths of a core that it may use; zero when nothing bounds it.
    pub cpu_limit_millis: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Bytes on the disk that its files are on, used and in all.
    pub disk_used_bytes: u64,
    /// See `disk_used_bytes`.
    pub disk_total_bytes: u64,
}

/// What a sandbox used at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// What.
    pub usage: Usage,
    /// Percent of one core used since the sample before.
    pub cpu_percent: f64,
}

/// Makes, shows, changes and reaches sandboxes.
///
/// # Guarantees
/// * Every answer to a change means that the change is durable.
/// * A tenant never learns of another's sandboxes: theirs are `NotFound`.
/// * `create` answers as soon as the wish is durable; `wait` is how a caller waits for more. A
///   caller that goes away before the answer leaves no sandbox behind.
/// * A record whose phase is `Running` has an agent that answered; `connect` to it works.
#[async_trait]
pub trait Control: Send + Sync + 'static {
    /// Accepts a new sandbox.
    async fn create(&self, tenant: &TenantId, create: Create) -> Result<Arc<Sandbox>>;

    /// Makes a sandbox and waits until it runs, ends or fails, at most `patience` from when it was
    /// accepted (waiting for stock has its own patience, see [`crate::Claim`]). A caller that goes
    /// away before the answer, by dropping the future, leaves nothing behind; nor does one whose
    /// sandbox is not running in the end: the answer then says why and the sandbox is removed.
    async fn create_and_wait(
        &self,
        tenant: &TenantId,
        create: Create,
        patience: Duration,
    ) -> Result<Arc<Sandbox>>;

    /// One sandbox.
    async fn get(&self, tenant: &TenantId, id: &SandboxId) -> Result<Arc<Sandbox>>;

    /// Some sandboxes, newest first.
    async fn list(
        &self,
        tenant: &TenantId,
        filter: &Filter,
        paging: Paging,
    ) -> Result<Page<Arc<Sandbox>>>;

    /// Waits until no action is planned for it (running, paused, ended, failed or gone) or until
    /// `patience` runs out; answers with its state then.
    async fn wait(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        patience: Duration,
    ) -> Result<Arc<Sandbox>>;

    /// Pauses it; `aging` says what becomes of its deadline meanwhile. Answers when the wish is
    /// durable. Should the pause fail, it goes on with the lifetime that it had.
    async fn pause(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        keep: Keep,
        aging: Aging,
    ) -> Result<Arc<Sandbox>>;

    /// Thaws it, to live until `until` at least; without that as long as it was meant to before
    /// its pause. Answers when the wish is durable.
    async fn resume(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        until: Option<Deadline>,
    ) -> Result<Arc<Sandbox>>;

    /// Removes it. From the answer on it is `NotFound` for everyone.
    async fn kill(&self, tenant: &TenantId, id: &SandboxId) -> Result<()>;

    /// Moves its deadline; `None` lets it live until it is removed.
    async fn set_deadline(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        deadline: Option<Deadline>,
    ) -> Result<Arc<Sandbox>>;

    /// Moves its deadline to `deadline` if that is later than the present one; what has none
    /// keeps none.
    async fn extend(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        deadline: Deadline,
    ) -> Result<Arc<Sandbox>>;

    /// Changes its labels.
    async fn patch_metadata(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        patch: MetadataPatch,
    ) -> Result<Arc<Sandbox>>;

    /// The newest `bytes_max` bytes of its entrypoint's output.
    async fn logs(&self, tenant: &TenantId, id: &SandboxId, bytes_max: usize) -> Result<LogTail>;

    /// What it used lately, oldest first: one sample every few seconds while it runs.
    async fn samples(&self, tenant: &TenantId, id: &SandboxId) -> Result<Vec<Sample>>;

    /// What it uses right now.
    async fn usage(&self, tenant: &TenantId, id: &SandboxId) -> Result<Usage>;

    /// Whether `connect` would let this caller in. A paused sandbox that has `wake_for` is resumed
    /// first, so that a connection opened earlier works again; whether a port is open shows only
    /// when it is tried.
    ///
    /// # Errors
    /// `NotFound` and `Conflict` as for `connect`.
    async fn check(&self, access: &Access, id: &SandboxId) -> Result<()>;

    /// Opens a stream to a port of it. A paused sandbox that has `wake_for` is resumed first.
    ///
    /// # Errors
    /// `NotFound` (also for a wrong token), `Conflict` with reason `SANDBOX_PAUSED` or
    /// `SANDBOX_NOT_RUNNING`, `Unavailable` with reason `PORT_CLOSED` when nothing listens there.
    async fn connect(&self, access: &Access, id: &SandboxId, port: Port) -> Result<BoxedIo>;

    /// Begins to keep its files. Answers when the wish is durable (`Creating`). Should the sandbox
    /// end before its turn comes, the snapshot fails.
    async fn snapshot(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        name: Option<String>,
    ) -> Result<Arc<Snapshot>>;

    /// One snapshot.
    async fn get_snapshot(&self, tenant: &TenantId, id: &SnapshotId) -> Result<Arc<Snapshot>>;

    /// Some snapshots, newest first.
    async fn list_snapshots(
        &self,
        tenant: &TenantId,
        filter: &SnapshotFilter,
    ) -> Result<Vec<Arc<Snapshot>>>;

    /// Starts `count` sandboxes with a copy of its files as they are now, each with a name, a
    /// token and labels of its own, and without the extensions named in `forget`. The outer error
    /// means that none was made.
    async fn fork(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        count: usize,
        lifetime: Option<Duration>,
        forget: &[&str],
    ) -> Result<Vec<Result<Arc<Sandbox>>>>;

    /// Removes a snapshot.
    async fn delete_snapshot(&self, tenant: &TenantId, id: &SnapshotId) -> Result<()>;
}
