//! Comparing records with what is really there: after hints, and every now and then anyway.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Observed, Phase, SandboxId};

use super::Actor;
use super::jobs::{Done, panicked};
use super::record::Deferred;
use crate::seam::RuntimeError;

/// The runtime should hold something that works for a sandbox in this phase.
fn is_up(phase: Phase) -> bool {
    matches!(phase, Phase::Running | Phase::Pausing | Phase::Paused | Phase::Resuming)
}

/// A creation is done when the runtime says so, not when something is seen to run: stock runs
/// before it is what its new owner asked for. The plan repeats the creation, which answers.
fn is_news(phase: Phase, seen: &Observed) -> bool {
    !(matches!(phase, Phase::Queued | Phase::Starting) && *seen == Observed::Running)
}

impl Actor {
    /// Something may have happened to `id`.
    pub(super) fn hint(&mut self, id: &SandboxId) {
        if let Some(record) = self.sandboxes.get_mut(id) {
            record.look_again = true;
            self.advance(id);
        }
    }

    /// Looks at `id` if a hint is waiting and nothing is being done to it.
    pub(super) fn follow_hint(&mut self, id: &SandboxId) {
        let epoch = self.epoch;
        let Some(record) = self.sandboxes.get_mut(id) else { return };
        if !record.look_again || record.observing || record.work.is_some() {
            return;
        }
        record.look_again = false;
        record.observing = true;
        let (runtime, id) = (self.runtime.clone(), id.clone());
        self.jobs.spawn(Done::Seen(id.clone(), epoch, Err(panicked())), async move {
            let seen = runtime.observe(&id).await;
            Done::Seen(id, epoch, seen)
        });
    }

    pub(super) fn seen(
        &mut self,
        id: &SandboxId,
        epoch: u64,
        result: Result<Observed, RuntimeError>,
    ) {
        let Some(record) = self.sandboxes.get_mut(id) else { return };
        record.observing = false;
        match result {
            Ok(_) if record.work.is_some() || record.touched > epoch => record.look_again = true,
            Ok(seen) if !is_news(record.sandbox.life.phase(), &seen) => {}
            Ok(seen) if record.proposal.is_some() => {
                record.backlog.push_back(Deferred::Seen(seen));
            }
            Ok(seen) => self.observe(id, &seen),
            // The next look at everything comes anyway.
            Err(error) => tracing::warn!(sandbox = %id, %error, "a sandbox can't be observed"),
        }
        self.advance(id);
    }

    /// Looks at everything.
    pub(super) fn look(&mut self) {
        let now = self.now();
        if now < self.clock_seen {
            // The clock was set back: waits that were computed from the old time are decided anew.
            let all: Vec<_> = self.sandboxes.keys().cloned().collect();
            all.iter().for_each(|id| self.advance(id));
        }
        self.clock_seen = now;
        self.tend = true;
        self.sweep = true;
        self.stock_time_passed();
        if std::mem::replace(&mut self.looking, true) {
            return;
        }
        let (runtime, epoch) = (self.runtime.clone(), self.epoch);
        self.jobs.spawn(Done::Looked(epoch, Err(panicked())), async move {
            Done::Looked(epoch, runtime.list().await)
        });
    }

    pub(super) fn looked(
        &mut self,
        epoch: u64,
        result: Result<Vec<(SandboxId, Observed)>, RuntimeError>,
    ) {
        self.looking = false;
        match result {
            Ok(listed) => self.compare(listed.into_iter().collect(), epoch),
            Err(error) => tracing::warn!(%error, "the runtime can't list its sandboxes"),
        }
    }

    /// Takes over what the runtime listed in `epoch`, and removes what belongs to nobody.
    pub(super) fn compare(&mut self, listed: BTreeMap<SandboxId, Observed>, epoch: u64) {
        let idle: Vec<_> = self
            .sandboxes
            .iter()
            .filter(|(_, record)| record.work.is_none() && record.touched <= epoch)
            .filter(|(_, record)| record.proposal.is_none())
            .map(|(id, record)| (id.clone(), record.sandbox.life.phase()))
            .collect();
        for (id, phase) in idle {
            match listed.get(&id) {
                // Half-made or half-removed: something is there, and the plan deals with it.
                Some(Observed::Absent) if !is_up(phase) => {}
                Some(seen) if !is_news(phase, seen) => {}
                Some(seen) => self.observe(&id, seen),
                // A creation that waits for its turn has nothing to show yet.
                None if matches!(phase, Phase::Queued | Phase::Starting) => {}
                None => self.observe(&id, &Observed::Absent),
            }
            self.advance(&id);
        }
        let orphans: BTreeSet<_> = listed.into_keys().filter(|id| self.is_orphan(id)).collect();
        for id in orphans {
            self.remove_orphan(id);
        }
    }

    /// What is listed under this name is nobody's: there is no record, or one that is done with
    /// the runtime.
    fn is_orphan(&self, id: &SandboxId) -> bool {
        let Some(record) = self.sandboxes.get(id) else { return true };
        let life = &record.sandbox.life;
        let over = matches!(life.phase(), Phase::Ended | Phase::Failed | Phase::Gone);
        over && life.plan().is_none() && record.work.is_none() && record.proposal.is_none()
    }

    fn remove_orphan(&mut self, id: SandboxId) {
        if !self.orphans.insert(id.clone()) {
            return;
        }
        tracing::info!(sandbox = %id, "removing a sandbox that no record knows");
        let runtime = self.runtime.clone();
        self.jobs.spawn(Done::OrphanRemoved(id.clone()), async move {
            if let Err(error) = runtime.remove_orphan(&id).await {
                tracing::warn!(sandbox = %id, %error, "an orphan can't be removed; trying again");
            }
            Done::OrphanRemoved(id)
        });
    }
}
