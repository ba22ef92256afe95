//! Requests: each makes a proposal, and nothing changes before that is durable.

use std::sync::Arc;

use atoll_control::MetadataPatch;
use atoll_core::{
    Aging, Deadline, Desired, Error, ErrorKind, Keep, Phase, Result, Sandbox, SandboxId,
    SnapshotState, Source, Timestamp, Wish,
};

use super::ledger::Key;
use super::record::{Deferred, Proposal, Record, SnapshotRecord};
use super::{Actor, Reply};

/// Snapshots of one sandbox that are taken or wait to be; forks are among them.
const SNAPSHOTS_WAITING_MAX: usize = 4;

/// A change of one record.
#[derive(Debug)]
pub(crate) enum Edit {
    Kill,
    Pause(Keep, Aging),
    Resume(Option<Deadline>),
    Deadline(Option<Deadline>),
    Extend(Deadline),
    Metadata(MetadataPatch),
    /// Resume it if it is paused, to live until then at least.
    Wake(Timestamp),
    /// The clock's own wish.
    Expire,
}

impl Edit {
    fn apply(self, sandbox: &mut Sandbox, now: Timestamp) -> Result<()> {
        match self {
            Self::Kill => sandbox.life.request(Wish::Kill, now)?,
            Self::Pause(keep, aging) => sandbox.life.pause(keep, aging, now)?,
            Self::Resume(until) => sandbox.life.resume(until, now)?,
            Self::Deadline(deadline) => sandbox.life.set_deadline(deadline, now),
            Self::Extend(deadline) => sandbox.life.extend(deadline, now),
            Self::Metadata(patch) => {
                for (key, value) in patch {
                    match value {
                        Some(value) => sandbox.spec.metadata.insert(key, value),
                        None => sandbox.spec.metadata.remove(&key),
                    };
                }
            }
            Self::Wake(until) => sandbox.life.wake(until, now)?,
            Self::Expire => {
                sandbox.life.tick(now);
            }
        }
        Ok(())
    }
}

fn exhausted(what: &str, max: usize) -> Error {
    let message = format!(
        "there are {max} {what} already, which is the limit for one tenant; remove some, or ask \
         the operator for a higher limit"
    );
    Error::new(ErrorKind::Exhausted, message).with_reason("QUOTA_EXCEEDED")
}

impl Actor {
    /// Begins what `record` proposes.
    pub(super) fn accept(&mut self, mut record: Record) {
        let id = record.sandbox.id.clone();
        record.touched = self.next_epoch();
        if record.sandbox.stock_of.is_none() {
            *self.living.entry(record.sandbox.tenant.clone()).or_default() += 1;
            self.ledger.mark_urgent(Key::Sandbox(id.clone()));
        } else {
            self.ledger.mark(Key::Sandbox(id.clone()));
        }
        self.sandboxes.insert(id.clone(), record);
        self.index_stock(&id);
        self.advance(&id);
    }

    pub(super) fn admit(&self, sandbox: &Sandbox) -> Result<()> {
        let max = self.config.sandboxes_per_tenant_max;
        if self.living.get(&sandbox.tenant).is_some_and(|count| *count >= max) {
            return Err(exhausted("sandboxes", max));
        }
        if self.sandboxes.contains_key(&sandbox.id) {
            return Err(Error::unavailable("the new sandbox's name is taken; try again"));
        }
        let Source::Snapshot(id) = &sandbox.spec.source else { return Ok(()) };
        let snapshot = self
            .snapshots
            .get(id)
            .filter(|record| record.accepted && !record.gone)
            .filter(|record| record.snapshot.tenant == sandbox.tenant)
            .ok_or_else(|| Error::not_found(format_args!("snapshot {id}")))?;
        let state = match (&snapshot.proposal, &snapshot.snapshot.state) {
            (None, SnapshotState::Ready) => return Ok(()),
            (None, SnapshotState::Creating) => "still being taken; wait until it is ready",
            (None, SnapshotState::Failed(_)) => "failed; take another one",
            (Some(_), _) | (None, SnapshotState::Deleting) => "being removed",
        };
        Err(Error::conflict(format!("snapshot {id} is {state}")))
    }

    pub(super) fn admit_snapshot(&self, sandbox: &Sandbox) -> Result<()> {
        let max = self.config.snapshots_per_tenant_max;
        let there = || self.snapshots.values().filter(|record| !record.gone);
        let being_taken =
            |record: &SnapshotRecord| record.snapshot.state == SnapshotState::Creating;
        // What a fork keeps is nobody's once it is there, but making it costs the same.
        let counts = |record: &&SnapshotRecord| {
            let snapshot = &record.snapshot;
            snapshot.tenant == sandbox.tenant && (!snapshot.hidden || being_taken(record))
        };
        if there().filter(counts).count() >= max {
            return Err(exhausted("snapshots", max));
        }
        let of_it = |r: &&SnapshotRecord| r.snapshot.sandbox == sandbox.id && being_taken(r);
        if there().filter(of_it).count() >= SNAPSHOTS_WAITING_MAX {
            let message = format!(
                "{SNAPSHOTS_WAITING_MAX} snapshots or forks of sandbox {} are under way; try \
                 again when one of them is done",
                sandbox.id
            );
            return Err(Error::new(ErrorKind::Exhausted, message).with_reason("SNAPSHOTS_WAITING"));
        }
        Ok(())
    }

    pub(super) fn edit(&mut self, id: &SandboxId, edit: Edit, reply: Option<Reply<Arc<Sandbox>>>) {
        let now = self.now();
        let answer = |reply: Option<Reply<_>>, result| {
            if let Some(reply) = reply {
                let _caller_gone = reply.send(result);
            }
        };
        let there = |record: &&mut Record| record.accepted && record.is_alive();
        let Some(record) = self.sandboxes.get_mut(id).filter(there) else {
            answer(reply, Err(Error::not_found(format_args!("sandbox {id}"))));
            return;
        };
        if record.proposal.is_some() {
            record.backlog.push_back(Deferred::Edit(edit, reply));
            return;
        }
        let mut next = Sandbox::clone(&record.sandbox);
        if let Err(error) = edit.apply(&mut next, now) {
            answer(reply, Err(error));
            return;
        }
        if next == *record.sandbox {
            // Nothing to write: the wishes in it are durable.
            answer(reply, Ok(record.sandbox.clone()));
            return;
        }
        record.proposal = Some(Proposal { next, reply, sent: false });
        self.ledger.mark_urgent(Key::Sandbox(id.clone()));
    }

    /// Puts a sandbox's record in place and shows or hides it.
    pub(super) fn put(&mut self, id: &SandboxId, next: Sandbox) {
        let Some(record) = self.sandboxes.get_mut(id) else { return };
        let ended = |sandbox: &Sandbox| sandbox.life.desired() == Desired::Gone;
        let ends = !ended(&record.sandbox) && ended(&next);
        record.sandbox = Arc::new(next);
        if record.is_visible() {
            self.view.show(&record.sandbox);
        } else {
            self.view.hide(&record.sandbox);
        }
        let over =
            matches!(record.sandbox.life.phase(), Phase::Ended | Phase::Failed | Phase::Gone);
        self.sweep |= over;
        if ends && record.sandbox.stock_of.is_none() {
            let tenant = record.sandbox.tenant.clone();
            self.forget_living(&tenant);
        }
        self.index_stock(id);
    }

    fn forget_living(&mut self, tenant: &atoll_core::TenantId) {
        if let Some(count) = self.living.get_mut(tenant) {
            *count -= 1;
            if *count == 0 {
                self.living.remove(tenant);
            }
        }
    }
}
