//! The record of one snapshot: files of a sandbox, kept.

use crate::id::{SandboxId, SnapshotId, TenantId};
use crate::time::Timestamp;

/// All we know of one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub id: SnapshotId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The sandbox it was taken from.
    pub sandbox: SandboxId,
    /// A name given by the user.
    pub name: Option<String>,
    /// Made only to copy its sandbox: never shown, and removed when nothing uses it any more.
    pub hidden: bool,
    /// Where it stands.
    pub state: SnapshotState,
    /// When the state last changed.
    pub changed_at: Timestamp,
    /// When it was asked for.
    pub created_at: Timestamp,
}

/// Where a snapshot stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotState {
    /// Being taken.
    Creating,
    /// Sandboxes can be made from it.
    Ready,
    /// It could not be taken; why.
    Failed(String),
    /// Being removed.
    Deleting,
}
