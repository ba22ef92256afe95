//! The whole product as one trait; every door is a translation to it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use atoll_core::{Deadline, Result, Sandbox, SandboxId, Snapshot, SnapshotId, TenantId};

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
    /// Processes and threads.
    pub pids: u64,
}

/// Makes, shows, changes and reaches sandboxes.
///
/// # Guarantees
/// * Every answer to a change means that the change is durable.
/// * A tenant never learns of another's sandboxes: theirs are `NotFound`.
/// * `create` answers as soon as the wish is durable; `wait` is how a caller waits for more.
/// * A record whose phase is `Running` has an agent that answered; `connect` to it works.
#[async_trait]
pub trait Control: Send + Sync + 'static {
    /// Accepts a new sandbox.
    async fn create(&self, tenant: &TenantId, create: Create) -> Result<Arc<Sandbox>>;

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

    /// Freezes it. Answers when the wish is durable.
    async fn pause(&self, tenant: &TenantId, id: &SandboxId) -> Result<Arc<Sandbox>>;

    /// Thaws it. Answers when the wish is durable.
    async fn resume(&self, tenant: &TenantId, id: &SandboxId) -> Result<Arc<Sandbox>>;

    /// Removes it. From the answer on it is `NotFound` for everyone.
    async fn kill(&self, tenant: &TenantId, id: &SandboxId) -> Result<()>;

    /// Moves its deadline; `None` lets it live until it is removed.
    async fn set_deadline(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        deadline: Option<Deadline>,
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

    /// What it uses right now.
    async fn usage(&self, tenant: &TenantId, id: &SandboxId) -> Result<Usage>;

    /// Whether `connect` would let this caller in right now; whether a port is open shows only
    /// when it is tried.
    ///
    /// # Errors
    /// `NotFound` and `Conflict` as for `connect`.
    fn check(&self, access: &Access, id: &SandboxId) -> Result<()>;

    /// Opens a stream to a port of it.
    ///
    /// # Errors
    /// `NotFound` (also for a wrong token), `Conflict` with reason `SANDBOX_PAUSED` or
    /// `SANDBOX_NOT_RUNNING`, `Unavailable` with reason `PORT_CLOSED` when nothing listens there.
    async fn connect(&self, access: &Access, id: &SandboxId, port: Port) -> Result<BoxedIo>;

    /// Begins to keep its files. Answers when the wish is durable (`Creating`).
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

    /// Removes a snapshot.
    async fn delete_snapshot(&self, tenant: &TenantId, id: &SnapshotId) -> Result<()>;
}
