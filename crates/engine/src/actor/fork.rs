//! Copies of a running sandbox: a snapshot nobody sees, and creations from it. The snapshot is
//! removed when no sandbox needs its files any more, also after a crash.

use std::sync::Arc;
use std::time::Duration;

use atoll_core::{
    Action, Deadline, Error, Expiry, Lifecycle, MountSource, Phase, Sandbox, SandboxId,
    SandboxSpec, Snapshot, SnapshotId, SnapshotState, Source, TenantId,
};

use super::claim::Order;
use super::ledger::Key;
use super::record::{Proposal, Record, SnapshotRecord};
use super::{Actor, Reply};
use crate::ids;
use crate::interest::Seat;

/// What each copy is, once the files are kept.
pub(super) struct Fork {
    tenant: TenantId,
    spec: SandboxSpec,
    on_expiry: Expiry,
    lifetime: Option<Duration>,
    copies: Vec<(Seat, Reply<Arc<Sandbox>>)>,
    /// Told when the copies are on their way, or why there will be none.
    begun: Reply<()>,
}

impl Fork {
    /// Whoever asked for it went away.
    pub(super) fn is_left(&self) -> bool {
        self.begun.is_closed()
    }
}

/// What a handle asks for.
pub(crate) struct ForkRequest {
    pub(crate) id: SandboxId,
    pub(crate) snapshot: SnapshotId,
    pub(crate) lifetime: Option<Duration>,
    /// Extensions that are the original's alone.
    pub(crate) forget: Vec<String>,
    pub(crate) copies: Vec<(Seat, Reply<Arc<Sandbox>>)>,
    pub(crate) begun: Reply<()>,
}

/// The copy's own wishes: its files come from the snapshot, and a volume that was to go with the
/// original stays for the others.
fn spec_of_copy(spec: &SandboxSpec, snapshot: &SnapshotId, forget: &[String]) -> SandboxSpec {
    let mut spec = SandboxSpec { source: Source::Snapshot(snapshot.clone()), ..spec.clone() };
    spec.extensions.retain(|name, _| !forget.contains(name));
    for mount in &mut spec.mounts {
        if let MountSource::Volume { delete_with_sandbox, .. } = &mut mount.source {
            *delete_with_sandbox = false;
        }
    }
    spec
}

impl Actor {
    pub(super) fn fork(&mut self, request: ForkRequest) {
        let ForkRequest { id, snapshot, lifetime, forget, copies, begun } = request;
        let next = match self.propose_snapshot(&id, snapshot.clone(), None) {
            Ok(next) => Snapshot { hidden: true, ..next },
            Err(error) => {
                let _caller_gone = begun.send(Err(error));
                return;
            }
        };
        let Some(source) = self.sandboxes.get(&id).map(|record| record.sandbox.clone()) else {
            return;
        };
        let fork = Fork {
            tenant: source.tenant.clone(),
            spec: spec_of_copy(&source.spec, &snapshot, &forget),
            on_expiry: source.life.expiry().unwrap_or(Expiry::Kill),
            lifetime,
            copies,
            begun,
        };
        self.forks.insert(snapshot.clone(), fork);
        let proposal = Proposal { next: next.clone(), reply: None, sent: false };
        self.snapshots.insert(snapshot.clone(), SnapshotRecord::proposed(next, proposal));
        self.ledger.mark_urgent(Key::Snapshot(snapshot));
    }

    /// The files of a fork are kept, or will never be.
    pub(super) fn go_on_with_fork(&mut self, snapshot: &SnapshotId) {
        let Some(record) = self.snapshots.get(snapshot) else { return };
        let outcome = match &record.snapshot.state {
            SnapshotState::Creating if !record.gone => return,
            SnapshotState::Ready if !record.gone => Ok(()),
            SnapshotState::Failed(why) => Err(format!("its files could not be kept: {why}")),
            SnapshotState::Creating | SnapshotState::Ready | SnapshotState::Deleting => {
                Err("its record could not be written; try again later".to_owned())
            }
        };
        self.sweep = true;
        let Some(fork) = self.forks.remove(snapshot) else { return };
        let Fork { tenant, spec, on_expiry, lifetime, copies, begun } = fork;
        let outcome = outcome
            .map_err(|why| Error::unavailable(format!("the sandbox could not be forked: {why}")));
        if begun.send(outcome.clone()).is_err() || outcome.is_err() {
            return;
        }
        let now = self.now();
        let deadline = lifetime.map(|l| Deadline { at: now.saturating_add(l), then: on_expiry });
        for (seat, reply) in copies {
            let random = &self.config.random;
            let sandbox = Box::new(Sandbox {
                id: SandboxId::parse(&ids::name(now, random)).expect("names we make are ids"),
                tenant: tenant.clone(),
                spec: spec.clone(),
                created_at: now,
                access_token: ids::token(random),
                stock_of: None,
                life: Lifecycle::new(now, deadline),
            });
            match self.admit(&sandbox) {
                Ok(()) => self.make(Order { sandbox, auth: None, seat, reply }),
                Err(error) => {
                    let _caller_gone = reply.send(Err(error));
                }
            }
        }
    }

    /// Removes hidden snapshots that nothing needs.
    pub(super) fn sweep_snapshots(&mut self) {
        if !std::mem::take(&mut self.sweep) || self.stopping.is_some() {
            return;
        }
        let unused = |(id, record): (&SnapshotId, &SnapshotRecord)| {
            let decided =
                matches!(record.snapshot.state, SnapshotState::Ready | SnapshotState::Failed(_));
            let idle = record.accepted && !record.gone && record.proposal.is_none();
            let unsaved = self.ledger.is_unsaved(&Key::Snapshot(id.clone()));
            (record.snapshot.hidden && decided && idle && !unsaved)
                .then_some(id)
                .filter(|id| !self.forks.contains_key(id) && !self.is_needed(id))
                .cloned()
        };
        let unused: Vec<_> = self.snapshots.iter().filter_map(unused).collect();
        let now = self.now();
        for id in unused {
            let Some(record) = self.snapshots.get_mut(&id) else { continue };
            let state = SnapshotState::Deleting;
            let next = Snapshot { state, changed_at: now, ..Snapshot::clone(&record.snapshot) };
            record.proposal = Some(Proposal { next, reply: None, sent: false });
            self.ledger.mark(Key::Snapshot(id));
        }
    }

    /// A sandbox has, or may yet get, files of this snapshot.
    fn is_needed(&self, snapshot: &SnapshotId) -> bool {
        let needs = |record: &Record| {
            let life = &record.sandbox.life;
            let over = matches!(life.phase(), Phase::Ended | Phase::Failed | Phase::Gone);
            let uses =
                matches!(&record.sandbox.spec.source, Source::Snapshot(id) if id == snapshot);
            uses && !(over && life.plan() != Some(Action::Remove))
        };
        self.sandboxes.values().any(needs)
    }
}
