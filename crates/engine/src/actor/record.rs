//! What the actor knows of one sandbox or snapshot beside its record.

use std::collections::VecDeque;
use std::sync::Arc;

use atoll_core::{
    Action, Desired, Observed, Phase, RegistryAuth, Sandbox, Snapshot, SnapshotId, Timestamp,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::jobs::Outcome;
use super::lanes::Lane;
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
    /// Snapshots to take of it; they go before any other action but its removal.
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
    /// Its caller went away before it had it: it shall go too.
    pub(super) abandoned: bool,
    /// It came from stock as it is, so that its creation takes milliseconds.
    pub(super) claimed: bool,
    /// When such a claim was made, until it runs.
    pub(super) claimed_since: Option<Instant>,
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
            abandoned: false,
            claimed: false,
            claimed_since: None,
        }
    }

    /// One whose creation begins now, while its record is on its way to disk.
    pub(super) fn proposed(
        mut sandbox: Sandbox,
        now: Timestamp,
        reply: Option<Reply<Arc<Sandbox>>>,
    ) -> Self {
        sandbox.life.began(Action::Create, now);
        let proposal = Proposal { next: sandbox.clone(), reply, sent: false };
        Self { accepted: false, proposal: Some(proposal), ..Self::new(sandbox) }
    }

    /// Something of it is still to be removed.
    pub(super) fn is_leaving(&self) -> bool {
        let life = &self.sandbox.life;
        life.desired() == Desired::Gone || life.plan() == Some(Action::Remove)
    }

    /// Its end is not wished.
    pub(super) fn is_alive(&self) -> bool {
        self.sandbox.life.desired() != Desired::Gone
    }

    pub(super) fn is_visible(&self) -> bool {
        self.accepted && self.is_alive() && self.sandbox.stock_of.is_none()
    }

    /// Something about it waits for the disk.
    pub(super) fn is_undecided(&self) -> bool {
        self.proposal.is_some() || !self.backlog.is_empty()
    }

    /// Stock on its way out: nothing else is ever proposed for stock.
    pub(super) fn is_doomed(&self) -> bool {
        self.accepted && self.is_undecided()
    }

    /// Stock that can be claimed.
    pub(super) fn is_free_stock(&self) -> bool {
        let life = &self.sandbox.life;
        let runs = life.phase() == Phase::Running && life.desired() == Desired::Running;
        self.sandbox.stock_of.is_some()
            && runs
            && self.accepted
            && self.work.is_none()
            && !self.is_doomed()
    }

    /// Where `kind` of work on it queues.
    pub(super) fn lane(&self, kind: &WorkKind) -> Lane {
        match kind {
            WorkKind::Act(Action::Create) if self.sandbox.stock_of.is_some() => Lane::Stock,
            WorkKind::Act(Action::Create) if self.claimed => Lane::Quick,
            WorkKind::Act(Action::Create) | WorkKind::Keep(_) => Lane::Slow,
            WorkKind::Act(Action::Pause | Action::Resume | Action::Remove) => Lane::Quick,
        }
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
    pub(super) lane: Lane,
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

impl SnapshotRecord {
    pub(super) fn proposed(snapshot: Snapshot, proposal: Proposal<Snapshot>) -> Self {
        let snapshot = Arc::new(snapshot);
        Self { snapshot, proposal: Some(proposal), accepted: false, gone: false }
    }
}
