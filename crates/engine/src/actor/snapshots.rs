//! Snapshots: taken as work on their sandbox, removed beside it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use atoll_core::{
    Error, Phase, Result, Sandbox, SandboxId, Snapshot, SnapshotId, SnapshotState, Source,
};

use super::fork::Fork;
use super::jobs::Done;
use super::ledger::Key;
use super::record::{Proposal, SnapshotRecord, WorkKind};
use super::{Actor, Reply};
use crate::seam::RuntimeError;

const REMOVAL_PAUSE_MIN: Duration = Duration::from_millis(100);
const REMOVAL_PAUSE_MAX: Duration = Duration::from_secs(30);

impl Actor {
    pub(super) fn keep(
        &mut self,
        id: &SandboxId,
        snapshot: SnapshotId,
        name: Option<String>,
        reply: Reply<Arc<Snapshot>>,
    ) {
        match self.propose_snapshot(id, snapshot.clone(), name) {
            Ok(next) => {
                let proposal = Proposal { next: next.clone(), reply: Some(reply), sent: false };
                let record = SnapshotRecord::proposed(next, proposal);
                self.snapshots.insert(snapshot.clone(), record);
                self.ledger.mark_urgent(Key::Snapshot(snapshot));
            }
            Err(error) => {
                let _caller_gone = reply.send(Err(error));
            }
        }
    }

    pub(super) fn propose_snapshot(
        &self,
        id: &SandboxId,
        snapshot: SnapshotId,
        name: Option<String>,
    ) -> Result<Snapshot> {
        let record = self.sandboxes.get(id).filter(|record| record.is_visible());
        let record = record.ok_or_else(|| Error::not_found(format_args!("sandbox {id}")))?;
        if record.sandbox.life.phase() != Phase::Running {
            let message =
                format!("sandbox {id} is not running; a snapshot can be taken only while it is");
            return Err(Error::conflict(message).with_reason("SANDBOX_NOT_RUNNING"));
        }
        self.admit_snapshot(&record.sandbox)?;
        if self.snapshots.contains_key(&snapshot) {
            return Err(Error::unavailable("the new snapshot's name is taken; try again"));
        }
        let now = self.now();
        Ok(Snapshot {
            id: snapshot,
            tenant: record.sandbox.tenant.clone(),
            sandbox: id.clone(),
            name,
            hidden: false,
            state: SnapshotState::Creating,
            changed_at: now,
            created_at: now,
        })
    }

    /// The work of taking `snapshot` ended.
    pub(super) fn kept(
        &mut self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        result: Result<(), RuntimeError>,
    ) {
        self.end_work(id);
        if let Some(record) = self.sandboxes.get_mut(id) {
            record.snapshots.retain(|waiting| waiting != snapshot);
        }
        let state = match result {
            Ok(()) => SnapshotState::Ready,
            Err(error) => SnapshotState::Failed(error.to_string()),
        };
        self.set_snapshot_state(snapshot, state);
        self.advance(id);
    }

    /// Gives up snapshots of `id` that have not begun and that its end has overtaken, or whose
    /// caller went away.
    pub(super) fn drop_vain_snapshots(&mut self, id: &SandboxId) {
        let Some(record) = self.sandboxes.get_mut(id) else { return };
        if record.snapshots.is_empty() {
            return;
        }
        let begun = match record.work.as_ref().map(|work| &work.kind) {
            Some(WorkKind::Keep(snapshot)) => Some(snapshot.clone()),
            Some(WorkKind::Act(_)) | None => None,
        };
        let ends = !record.is_alive();
        let left = |id: &SnapshotId| self.forks.get(id).is_some_and(Fork::is_left);
        let vain = |id: &SnapshotId| begun.as_ref() != Some(id) && (ends || left(id));
        let (given_up, staying): (VecDeque<_>, _) = record.snapshots.drain(..).partition(vain);
        record.snapshots = staying;
        let why = if ends { "its sandbox was removed first" } else { "nobody waits for it" };
        for snapshot in given_up {
            self.set_snapshot_state(&snapshot, SnapshotState::Failed(why.to_owned()));
        }
    }

    fn set_snapshot_state(&mut self, id: &SnapshotId, state: SnapshotState) {
        let now = self.now();
        let Some(record) = self.snapshots.get_mut(id) else { return };
        let next = Snapshot { state, changed_at: now, ..Snapshot::clone(&record.snapshot) };
        record.snapshot = Arc::new(next);
        self.view.show_snapshot(&record.snapshot);
        self.ledger.mark(Key::Snapshot(id.clone()));
        self.go_on_with_fork(id);
    }

    pub(super) fn delete_snapshot(&mut self, id: &SnapshotId, reply: Reply<Arc<Snapshot>>) {
        match self.propose_deletion(id) {
            Ok(Some(next)) => {
                if let Some(record) = self.snapshots.get_mut(id) {
                    record.proposal = Some(Proposal { next, reply: Some(reply), sent: false });
                    self.ledger.mark_urgent(Key::Snapshot(id.clone()));
                }
            }
            Ok(None) => {
                if let Some(record) = self.snapshots.get(id) {
                    let _caller_gone = reply.send(Ok(record.snapshot.clone()));
                }
            }
            Err(error) => {
                let _caller_gone = reply.send(Err(error));
            }
        }
    }

    /// The record of a snapshot being removed; `None` when it is that already.
    fn propose_deletion(&self, id: &SnapshotId) -> Result<Option<Snapshot>> {
        let record = self.snapshots.get(id).filter(|record| record.accepted && !record.gone);
        let record = record.ok_or_else(|| Error::not_found(format_args!("snapshot {id}")))?;
        match record.snapshot.state {
            SnapshotState::Deleting => return Ok(None),
            SnapshotState::Creating => {
                return Err(Error::conflict(format!(
                    "snapshot {id} is still being taken; wait until it is ready"
                )));
            }
            SnapshotState::Ready | SnapshotState::Failed(_) => {}
        }
        if record.proposal.is_some() {
            return Err(Error::conflict(format!("snapshot {id} is being removed")));
        }
        if let Some(user) = self.user_of(id) {
            let message = match &user.stock_of {
                Some(pool) => format!("pool {pool} is made from snapshot {id}; remove it first"),
                None => {
                    let user = &user.id;
                    format!("sandbox {user} runs on snapshot {id}; remove the sandbox first")
                }
            };
            return Err(Error::conflict(message));
        }
        let now = self.now();
        let state = SnapshotState::Deleting;
        Ok(Some(Snapshot { state, changed_at: now, ..Snapshot::clone(&record.snapshot) }))
    }

    /// A sandbox whose files are those of the snapshot.
    fn user_of(&self, snapshot: &SnapshotId) -> Option<&Sandbox> {
        let uses = |source: &Source| matches!(source, Source::Snapshot(id) if id == snapshot);
        let alive = |phase| !matches!(phase, Phase::Ended | Phase::Failed | Phase::Gone);
        self.sandboxes.values().find_map(|record| {
            let sandbox = &*record.sandbox;
            let removed = record.accepted && !record.is_alive();
            (uses(&sandbox.spec.source) && alive(sandbox.life.phase()) && !removed)
                .then_some(sandbox)
        })
    }

    pub(super) fn snapshot_committed(&mut self, id: &SnapshotId, result: &Result<()>) {
        let unchanged = !self.ledger.is_dirty(&Key::Snapshot(id.clone()));
        self.sweep = true;
        let Some(record) = self.snapshots.get_mut(id) else { return };
        if let Some(proposal) = record.proposal.take_if(|proposal| proposal.sent) {
            let answer = match result {
                Ok(()) => {
                    record.accepted = true;
                    record.snapshot = Arc::new(proposal.next);
                    self.view.show_snapshot(&record.snapshot);
                    Ok(record.snapshot.clone())
                }
                Err(error) => {
                    // What was never accepted is dropped, in case it reached the disk after all.
                    record.gone = !record.accepted;
                    Err(error.clone())
                }
            };
            if let Some(reply) = proposal.reply {
                let _caller_gone = reply.send(answer);
            }
            if result.is_ok() {
                self.snapshot_accepted(id);
            }
            self.go_on_with_fork(id);
        } else if record.gone && result.is_ok() && unchanged {
            self.snapshots.remove(id);
        }
    }

    fn snapshot_accepted(&mut self, id: &SnapshotId) {
        let Some(record) = self.snapshots.get(id) else { return };
        let sandbox = record.snapshot.sandbox.clone();
        match record.snapshot.state {
            SnapshotState::Deleting => self.remove_snapshot(id.clone()),
            SnapshotState::Creating => match self.sandboxes.get_mut(&sandbox) {
                Some(source) => {
                    source.snapshots.push_back(id.clone());
                    self.advance(&sandbox);
                }
                None => {
                    let why = SnapshotState::Failed("its sandbox was removed first".to_owned());
                    self.set_snapshot_state(id, why);
                }
            },
            SnapshotState::Ready | SnapshotState::Failed(_) => {}
        }
    }

    /// Removes the files until it works: a sandbox that is on its way out may still use them.
    pub(super) fn remove_snapshot(&mut self, id: SnapshotId) {
        let runtime = self.runtime.clone();
        self.jobs.spawn(Done::SnapshotRemoved(id.clone()), async move {
            let mut pause = REMOVAL_PAUSE_MIN;
            while let Err(error) = runtime.remove_snapshot(&id).await {
                tracing::warn!(snapshot = %id, %error, "a snapshot can't be removed; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(REMOVAL_PAUSE_MAX);
            }
            Done::SnapshotRemoved(id)
        });
    }

    pub(super) fn snapshot_removed(&mut self, id: &SnapshotId) {
        let Some(record) = self.snapshots.get_mut(id) else { return };
        if record.snapshot.state == SnapshotState::Deleting {
            record.gone = true;
            self.view.hide_snapshot(id);
            self.ledger.mark(Key::Snapshot(id.clone()));
        }
    }
}
