//! What readers see, written only by the actor, so that reads never queue behind it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use atoll_control::{Filter, LogTail, Page, Paging, Sample, SnapshotFilter};
use atoll_core::{Phase, Sandbox, SandboxId, Snapshot, SnapshotId, TenantId, Timestamp};
use tokio::sync::watch;

/// One visible sandbox.
struct Slot {
    /// Subscribers are woken by every change and by its end.
    sandbox: watch::Sender<Arc<Sandbox>>,
    /// Its last output, once it ended by itself and its files are gone.
    log: OnceLock<LogTail>,
    samples: Mutex<VecDeque<Sample>>,
}

impl Slot {
    fn samples(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Samples kept of one sandbox: half an hour.
const SAMPLES_MAX: usize = 360;

/// By time and name; no name sorts before all of that time.
type Newest = BTreeMap<(Timestamp, Option<SandboxId>), Arc<Slot>>;

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
        let everything = filter.phases.is_empty()
            && filter.metadata.is_empty()
            && filter.template.is_none()
            && filter.created_from.is_none();
        let from = filter.created_from.unwrap_or(Timestamp::from_micros(i64::MIN));
        let mut slots = newest.range((from, None)..).map(|(_, slot)| slot);
        let slots: &mut dyn Iterator<Item = &Arc<Slot>> =
            if filter.oldest_first { &mut slots } else { &mut slots.rev() };
        if everything {
            let items = slots.skip(paging.skip).take(paging.take);
            let items = items.map(|slot| slot.sandbox.borrow().clone()).collect();
            return Page { items, total: newest.len() };
        }
        let (mut items, mut total) = (Vec::new(), 0);
        let window = paging.skip..paging.skip.saturating_add(paging.take);
        for slot in slots {
            let sandbox = slot.sandbox.borrow();
            if matches(filter, &sandbox) {
                if window.contains(&total) {
                    items.push(Arc::clone(&sandbox));
                }
                total += 1;
            }
        }
        Page { items, total }
    }

    pub(crate) fn show(&self, sandbox: &Arc<Sandbox>) {
        if let Some(slot) = self.read().sandboxes.get(&sandbox.id) {
            slot.sandbox.send_replace(sandbox.clone());
            return;
        }
        let changes = watch::Sender::new(sandbox.clone());
        let slot =
            Arc::new(Slot { sandbox: changes, log: OnceLock::new(), samples: Mutex::default() });
        let key = (sandbox.created_at, Some(sandbox.id.clone()));
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
            newest.remove(&(sandbox.created_at, Some(sandbox.id.clone())));
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

    /// The sandboxes that run, with what each used when it was last asked.
    pub(crate) fn running(&self) -> Vec<(SandboxId, Option<Sample>)> {
        let newest = |slot: &Slot| slot.samples().back().copied();
        let running = |(id, slot): (&SandboxId, &Arc<Slot>)| {
            let runs = slot.sandbox.borrow().life.phase() == Phase::Running;
            runs.then(|| (id.clone(), newest(slot)))
        };
        self.read().sandboxes.iter().filter_map(running).collect()
    }

    /// Adds to what is known of a sandbox's use.
    pub(crate) fn add_sample(&self, id: &SandboxId, sample: Sample) {
        let slot = self.read().sandboxes.get(id).cloned();
        if let Some(slot) = slot {
            let mut samples = slot.samples();
            if samples.len() == SAMPLES_MAX {
                samples.pop_front();
            }
            samples.push_back(sample);
        }
    }

    pub(crate) fn samples(&self, id: &SandboxId) -> Vec<Sample> {
        let slot = self.read().sandboxes.get(id).cloned();
        slot.map(|slot| slot.samples().iter().copied().collect()).unwrap_or_default()
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
        if snapshot.hidden {
            return;
        }
        self.write().snapshots.insert(snapshot.id.clone(), snapshot.clone());
    }

    pub(crate) fn hide_snapshot(&self, id: &SnapshotId) {
        self.write().snapshots.remove(id);
    }
}

fn is_from(sandbox: &Sandbox, template: &str) -> bool {
    sandbox
        .spec
        .template
        .as_ref()
        .is_some_and(|origin| origin.id == template || origin.alias.as_deref() == Some(template))
}

fn matches(filter: &Filter, sandbox: &Sandbox) -> bool {
    let phase = filter.phases.is_empty() || filter.phases.contains(&sandbox.life.phase());
    phase
        && filter.template.as_ref().is_none_or(|template| is_from(sandbox, template))
        && filter.metadata.iter().all(|(key, value)| sandbox.spec.metadata.get(key) == Some(value))
}
