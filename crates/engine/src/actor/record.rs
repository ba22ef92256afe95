//! What the actor knows of one sandbox or snapshot beside its record.

use std::collections::VecDeque;
use std::sync::Arc;

use atoll_core::{
    Action, Desired, Observed, RegistryAuth, Sandbox, Snapshot, SnapshotId, Timestamp,
};
use tokio::sync::oneshot;

use super::jobs::Outcome;
use super::{Edit, Reply};

/// One sandbox.
pub(super) struct Record {
    /// The wishes in it are durable; the facts in it may not be yet.
    pub(super) sandbox: Arc<Sandbox>,
    /// A wish on its way to disk. Until it is there, everything else waits in `backlog`.
    pub(super) proposal: Option<Proposal<Sandbox>>,
    pub(super) backlog: VecDeque<Deferred>,
    /// Its creation is durable: users may see it.
    pub(super) accepted: bool,
    pub(super) work: Option<Work>,
    /// Snapshots to take of it; they go before any other action.
    pub(super) snapshots: VecDeque<SnapshotId>,
    /// Never written anywhere; gone as soon as the image is here.
    pub(super) auth: Option<RegistryAuth>,
    pub(super) timer: Option<Timestamp>,
    /// The epoch in which its last action began or ended.
    pub(super) touched: u64,
    /// The runtime gave a hint that wasn't followed yet.
    pub(super) look_again: bool,
    pub(super) observing: bool,
    /// Its creation was interrupted by a restart, which lost registry credentials.
    pub(super) interrupted: bool,
}

impl Record {
    pub(super) fn new(sandbox: Sandbox) -> Self {
        Self {
            sandbox: Arc::new(sandbox),
            proposal: None,
            backlog: VecDeque::new(),
            accepted: true,
            work: None,
            snapshots: VecDeque::new(),
            auth: None,
            timer: None,
            touched: 0,
            look_again: false,
            observing: false,
            interrupted: false,
        }
    }

    /// Something of it is still to be removed.
    pub(super) fn is_leaving(&self) -> bool {
        let life = &self.sandbox.life;
        life.desired() == Desired::Gone || life.plan() == Some(Action::Remove)
    }

    pub(super) fn is_visible(&self) -> bool {
        self.accepted && self.sandbox.life.desired() != Desired::Gone
    }
}

/// A record as it would be, waiting to be durable.
pub(super) struct Proposal<T> {
    pub(super) next: T,
    pub(super) reply: Option<Reply<Arc<T>>>,
    /// It is part of the commit in flight.
    pub(super) sent: bool,
}

/// Something that waits for a proposal to be decided.
pub(super) enum Deferred {
    Edit(Edit, Option<Reply<Arc<Sandbox>>>),
    Outcome(Action, Outcome),
    Seen(Observed),
}

/// What is being done to a sandbox.
pub(super) struct Work {
    pub(super) kind: WorkKind,
    /// Stops it; used for creations that nobody wants any more.
    pub(super) cancel: Option<oneshot::Sender<()>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WorkKind {
    Act(Action),
    Keep(SnapshotId),
}

/// One snapshot.
pub(super) struct SnapshotRecord {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) proposal: Option<Proposal<Snapshot>>,
    pub(super) accepted: bool,
    /// Nothing is left of it but the record.
    pub(super) gone: bool,
}
