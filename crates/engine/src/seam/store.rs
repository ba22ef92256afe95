//! Where records outlive the process.

use async_trait::async_trait;
use atoll_control::Pool;
use atoll_core::{Sandbox, SandboxId, Snapshot, SnapshotId};

/// Why records could not be kept or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// What was being done.
    pub doing: &'static str,
    /// What the storage said.
    pub cause: String,
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.doing, self.cause)
    }
}

impl std::error::Error for StoreError {}

/// One change to the records.
#[derive(Clone, Debug)]
pub enum Change {
    /// Insert or replace.
    PutSandbox(Box<Sandbox>),
    /// Forget; one that isn't there is fine.
    DropSandbox(SandboxId),
    /// Insert or replace.
    PutSnapshot(Box<Snapshot>),
    /// Forget; one that isn't there is fine.
    DropSnapshot(SnapshotId),
    /// Insert or replace.
    PutPool(Box<Pool>),
    /// Forget the pool of this name; one that isn't there is fine.
    DropPool(String),
}

/// Everything a store holds.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// All sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// All snapshots.
    pub snapshots: Vec<Snapshot>,
    /// All warm pools.
    pub pools: Vec<Pool>,
}

/// Keeps records. One engine owns one store, so there is no contention to resolve.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Everything there is.
    async fn load(&self) -> Result<Loaded, StoreError>;

    /// Makes all changes durable in order and all or none, then returns.
    async fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError>;
}
