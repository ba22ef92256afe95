//! Requests: each makes a proposal, and nothing changes before that is durable.

use std::sync::Arc;

use atoll_control::MetadataPatch;
use atoll_core::{
    Action, Deadline, Desired, Error, ErrorKind, RegistryAuth, Result, Sandbox, SandboxId,
    SnapshotState, Source, Timestamp, Wish,
};

use super::ledger::Key;
use super::record::{Deferred, Proposal, Record};
use super::{Actor, Reply};

/// A change of one record.
#[derive(Debug)]
pub(crate) enum Edit {
    Wish(Wish),
    Deadline(Option<Deadline>),
    Metadata(MetadataPatch),
    /// The clock's own wish.
    Expire,
}

impl Edit {
    fn apply(self, sandbox: &mut Sandbox, now: Timestamp) -> Result<()> {
        match self {
            Self::Wish(wish) => sandbox.life.request(wish, now)?,
            Self::Deadline(deadline) => sandbox.life.set_deadline(deadline),
            Self::Metadata(patch) => {
                for (key, value) in patch {
                    match value {
                        Some(value) => sandbox.spec.metadata.insert(key, value),
                        None => sandbox.spec.metadata.remove(&key),
                    };
                }
            }
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
    pub(super) fn create(
        &mut self,
        mut sandbox: Sandbox,
        auth: Option<RegistryAuth>,
        reply: Reply<Arc<Sandbox>>,
    ) {
        if let Err(error) = self.admit(&sandbox) {
            let _caller_gone = reply.send(Err(error));
            return;
        }
        // Written as begun: the creation starts at once, while the record is on its way to disk.
        sandbox.life.began(Action::Create, self.now());
        let id = sandbox.id.clone();
        *self.living.entry(sandbox.tenant.clone()).or_default() += 1;
        let mut record = Record::new(sandbox.clone());
        record.accepted = false;
        record.auth = auth;
        record.proposal = Some(Proposal { next: sandbox, reply: Some(reply), sent: false });
        record.touched = self.next_epoch();
        self.sandboxes.insert(id.clone(), record);
        self.ledger.mark_urgent(Key::Sandbox(id.clone()));
        self.advance(&id);
    }

    fn admit(&self, sandbox: &Sandbox) -> Result<()> {
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
        let tenants = self.snapshots.values().filter(|r| r.snapshot.tenant == sandbox.tenant);
        if tenants.filter(|record| !record.gone).count() >= max {
            return Err(exhausted("snapshots", max));
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
        let Some(record) = self.sandboxes.get_mut(id).filter(|record| record.is_visible()) else {
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
        if ends {
            let tenant = record.sandbox.tenant.clone();
            self.forget_living(&tenant);
        }
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
