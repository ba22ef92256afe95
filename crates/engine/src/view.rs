//! What readers see, written only by the actor, so that reads never queue behind it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use atoll_control::{Filter, LogTail, Page, Paging, SnapshotFilter};
use atoll_core::{Sandbox, SandboxId, Snapshot, SnapshotId, TenantId, Timestamp};
use tokio::sync::watch;

/// One visible sandbox.
struct Slot {
    /// Subscribers are woken by every change and by its end.
    sandbox: watch::Sender<Arc<Sandbox>>,
    /// Its last output, once it ended by itself and its files are gone.
    log: OnceLock<LogTail>,
}

type Newest = BTreeMap<(Timestamp, SandboxId), Arc<Slot>>;

#[derive(Default)]
struct Tables {
    sandboxes: HashMap<SandboxId, Arc<Slot>>,
    tenants: HashMap<TenantId, Newest>,
    snapshots: BTreeMap<SnapshotId, Arc<Snapshot>>,
}

/// All that is visible to users.
#[derive(Default)]
pub(crate) struct View(RwLock<Tables>);

impl View {
    // A panic while holding the lock can't leave the tables half-written in a harmful way: every
    // write below is repeated with the next change of the record.
    fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tables> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sandbox(&self, id: &SandboxId) -> Option<Arc<Sandbox>> {
        self.read().sandboxes.get(id).map(|slot| slot.sandbox.borrow().clone())
    }

    pub(crate) fn subscribe(&self, id: &SandboxId) -> Option<watch::Receiver<Arc<Sandbox>>> {
        self.read().sandboxes.get(id).map(|slot| slot.sandbox.subscribe())
    }

    pub(crate) fn len(&self) -> usize {
        self.read().sandboxes.len()
    }

    pub(crate) fn page(
        &self,
        tenant: &TenantId,
        filter: &Filter,
        paging: Paging,
    ) -> Page<Arc<Sandbox>> {
        let tables = self.read();
        let Some(newest) = tables.tenants.get(tenant) else {
            return Page { items: Vec::new(), total: 0 };
        };
        let window = |slots: &mut dyn Iterator<Item = Arc<Sandbox>>| -> Vec<_> {
            slots.skip(paging.skip).take(paging.take).collect()
        };
        let mut all = newest.values().rev().map(|slot| slot.sandbox.borrow().clone());
        if filter.phases.is_empty() && filter.metadata.is_empty() {
            return Page { items: window(&mut all), total: newest.len() };
        }
        let matching: Vec<_> = all.filter(|sandbox| matches(filter, sandbox)).collect();
        let total = matching.len();
        Page { items: window(&mut matching.into_iter()), total }
    }

    pub(crate) fn show(&self, sandbox: &Arc<Sandbox>) {
        if let Some(slot) = self.read().sandboxes.get(&sandbox.id) {
            slot.sandbox.send_replace(sandbox.clone());
            return;
        }
        let changes = watch::Sender::new(sandbox.clone());
        let slot = Arc::new(Slot { sandbox: changes, log: OnceLock::new() });
        let key = (sandbox.created_at, sandbox.id.clone());
        let mut tables = self.write();
        tables.tenants.entry(sandbox.tenant.clone()).or_default().insert(key, slot.clone());
        tables.sandboxes.insert(sandbox.id.clone(), slot);
    }

    pub(crate) fn hide(&self, sandbox: &Sandbox) {
        let mut tables = self.write();
        if tables.sandboxes.remove(&sandbox.id).is_none() {
            return;
        }
        if let Some(newest) = tables.tenants.get_mut(&sandbox.tenant) {
            newest.remove(&(sandbox.created_at, sandbox.id.clone()));
            if newest.is_empty() {
                tables.tenants.remove(&sandbox.tenant);
            }
        }
    }

    /// Keeps the last output of a sandbox that ended, as long as users can see it.
    pub(crate) fn keep_log(&self, id: &SandboxId, log: LogTail) {
        if let Some(slot) = self.read().sandboxes.get(id) {
            slot.log.get_or_init(|| log);
        }
    }

    pub(crate) fn last_log(&self, id: &SandboxId) -> Option<LogTail> {
        self.read().sandboxes.get(id).and_then(|slot| slot.log.get().cloned())
    }

    pub(crate) fn snapshot(&self, id: &SnapshotId) -> Option<Arc<Snapshot>> {
        self.read().snapshots.get(id).cloned()
    }

    pub(crate) fn snapshots(
        &self,
        tenant: &TenantId,
        filter: &SnapshotFilter,
    ) -> Vec<Arc<Snapshot>> {
        let wanted = |snapshot: &&Arc<Snapshot>| {
            snapshot.tenant == *tenant
                && filter.sandbox.as_ref().is_none_or(|id| *id == snapshot.sandbox)
                && filter.name.as_ref().is_none_or(|name| Some(name) == snapshot.name.as_ref())
        };
        self.read().snapshots.values().rev().filter(wanted).cloned().collect()
    }

    pub(crate) fn show_snapshot(&self, snapshot: &Arc<Snapshot>) {
        self.write().snapshots.insert(snapshot.id.clone(), snapshot.clone());
    }

    pub(crate) fn hide_snapshot(&self, id: &SnapshotId) {
        self.write().snapshots.remove(id);
    }
}

fn matches(filter: &Filter, sandbox: &Sandbox) -> bool {
    let phase = filter.phases.is_empty() || filter.phases.contains(&sandbox.life.phase());
    phase
        && filter.metadata.iter().all(|(key, value)| sandbox.spec.metadata.get(key) == Some(value))
}
