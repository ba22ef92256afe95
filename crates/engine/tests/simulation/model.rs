//! What users know, and so what must be true.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Deadline, Expiry, Phase, SandboxId, SnapshotId, TenantId, Timestamp};

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) sandboxes: BTreeMap<SandboxId, Known>,
    pub(crate) snapshots: BTreeMap<SnapshotId, KnownSnapshot>,
    /// Sizes of the pools that were declared last.
    pub(crate) pools: BTreeMap<String, Certain<Option<usize>>>,
    /// Sandboxes that vanished from the machine by themselves.
    pub(crate) lost: BTreeSet<SandboxId>,
    /// Calls whose callers went away before they were answered, since the last crash.
    pub(crate) left: BTreeSet<String>,
    pub(crate) story: Vec<String>,
}

/// A sandbox whose creation was acknowledged.
pub(crate) struct Known {
    pub(crate) tenant: TenantId,
    /// Its end was acknowledged.
    pub(crate) killed: bool,
    /// Its end was asked for, or its time was up.
    pub(crate) may_be_gone: bool,
    /// Deadlines that it may have now.
    pub(crate) deadlines: Vec<Deadline>,
    pub(crate) label: Certain<Option<String>>,
    pub(crate) last_phase: Option<Phase>,
}

/// The value of the last acknowledged change; `None` when nobody can know it.
#[derive(Default)]
pub(crate) struct Certain<T> {
    pub(crate) value: Option<T>,
    begun: u32,
    pending: u32,
}

impl<T> Certain<T> {
    fn new(value: T) -> Self {
        Self { value: Some(value), begun: 0, pending: 0 }
    }

    /// A change begins; answers with its number.
    pub(crate) fn begin(&mut self) -> Option<u32> {
        self.value = None;
        self.begun += 1;
        self.pending += 1;
        (self.pending == 1).then_some(self.begun)
    }

    /// It ended; what it set is certain only if no other change ran beside it.
    pub(crate) fn end(&mut self, number: Option<u32>, value: T, worked: bool) {
        self.pending -= 1;
        if worked && number == Some(self.begun) {
            self.value = Some(value);
        }
    }
}

pub(crate) struct KnownSnapshot {
    pub(crate) tenant: TenantId,
    pub(crate) may_be_gone: bool,
}

impl Model {
    pub(crate) fn tell(&mut self, line: String) {
        self.story.push(line);
    }

    pub(crate) fn created(
        &mut self,
        id: &SandboxId,
        tenant: &TenantId,
        deadline: Option<Deadline>,
    ) {
        let known = Known {
            tenant: tenant.clone(),
            killed: false,
            may_be_gone: false,
            deadlines: deadline.into_iter().collect(),
            label: Certain::new(None),
            last_phase: None,
        };
        let before = self.sandboxes.insert(id.clone(), known);
        assert!(before.is_none(), "{id} was given to two callers");
    }

    /// Ids that users may still ask for, with their tenants.
    pub(crate) fn living(&self) -> Vec<(SandboxId, TenantId)> {
        let living = self.sandboxes.iter().filter(|(_, known)| !known.killed);
        living.map(|(id, known)| (id.clone(), known.tenant.clone())).collect()
    }

    pub(crate) fn snapshots(&self) -> Vec<(SnapshotId, TenantId)> {
        self.snapshots.iter().map(|(id, known)| (id.clone(), known.tenant.clone())).collect()
    }

    pub(crate) fn clock_moved(&mut self, now: Timestamp) {
        for known in self.sandboxes.values_mut() {
            known.time_is(now);
        }
    }

    /// What only memory knew is gone, so phases may be seen again.
    pub(crate) fn crashed(&mut self) {
        self.tell("crash".to_owned());
        for known in self.sandboxes.values_mut() {
            known.last_phase = None;
            known.label.pending = 0;
        }
        self.pools.values_mut().for_each(|pool| pool.pending = 0);
        // Their records may have been durable, and nobody was left to take them back.
        self.left.clear();
    }

    pub(crate) fn tenants() -> BTreeSet<TenantId> {
        ["alpha", "beta"].map(atoll_testkit::sample::tenant).into()
    }
}

impl Known {
    pub(crate) fn time_is(&mut self, now: Timestamp) {
        // An expiry that pauses a failed sandbox removes it, so either kind may end it.
        let passed = |deadline: &Deadline| deadline.at <= now;
        let ends = |deadline: &Deadline| match deadline.then {
            Expiry::Kill | Expiry::Pause(_) => passed(deadline),
        };
        self.may_be_gone |= self.deadlines.iter().any(ends);
    }

    /// Phases only move along the arrows of the contract.
    pub(crate) fn see(&mut self, id: &SandboxId, phase: Phase) {
        let last = self.last_phase.replace(phase);
        let over = |phase| matches!(phase, Phase::Ended | Phase::Failed);
        if let Some(last) = last.filter(|last| over(*last)) {
            assert_eq!(phase, last, "{id} came back from its end");
        }
        let hidden = matches!(phase, Phase::Gone | Phase::Stopping);
        assert!(!hidden, "{id} is shown though it is {phase:?}");
    }
}
