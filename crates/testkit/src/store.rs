//! A store in memory that can be slow, full or torn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use atoll_control::Pool;
use atoll_core::{Sandbox, SandboxId, Snapshot, SnapshotId, Source};
use atoll_engine::Store;
use atoll_engine::seam::{Change, Loaded, StoreError};
use tokio::sync::watch;

use crate::random::Seeded;

/// How often commits go wrong.
#[derive(Clone, Copy, Debug)]
pub struct StoreFaults {
    /// Where the randomness starts.
    pub seed: u64,
    /// Of a hundred commits, so many fail; every other one of them has reached the disk.
    pub fail_percent: u64,
    /// A commit lets others run up to so many times before and after it takes effect.
    pub yields_max: u64,
}

#[derive(Default)]
struct State {
    sandboxes: BTreeMap<SandboxId, Sandbox>,
    snapshots: BTreeMap<SnapshotId, Snapshot>,
    pools: BTreeMap<String, Pool>,
    faults: Option<(StoreFaults, Seeded)>,
    full: bool,
    /// Number of changes in each commit that worked.
    commits: Vec<usize>,
}

/// Keeps records as long as the test runs, and fails on demand.
#[derive(Default)]
pub struct FaultyStore {
    state: Mutex<State>,
    held: watch::Sender<bool>,
}

impl FaultyStore {
    /// An empty store that works.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes commits fail at random, or stops that.
    pub fn set_faults(&self, faults: Option<StoreFaults>) {
        self.state().faults = faults.map(|faults| (faults, Seeded::new(faults.seed)));
    }

    /// Makes every commit fail, as on a full disk.
    pub fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    /// Lets commits wait until [`FaultyStore::release`].
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Lets waiting commits go on.
    pub fn release(&self) {
        self.held.send_replace(false);
    }

    /// Number of changes in each commit that worked so far.
    pub fn commits(&self) -> Vec<usize> {
        self.state().commits.clone()
    }

    /// The record as it would be found after a crash now.
    pub fn sandbox(&self, id: &SandboxId) -> Option<Sandbox> {
        self.state().sandboxes.get(id).cloned()
    }

    /// The record as it would be found after a crash now.
    pub fn snapshot(&self, id: &SnapshotId) -> Option<Snapshot> {
        self.state().snapshots.get(id).cloned()
    }

    /// Everything that would be found after a crash now.
    pub fn contents(&self) -> Loaded {
        let state = self.state();
        Loaded {
            sandboxes: state.sandboxes.values().cloned().collect(),
            snapshots: state.snapshots.values().cloned().collect(),
            pools: state.pools.values().cloned().collect(),
        }
    }

    /// What a crash now would leave, as a store of its own that works.
    pub fn crash(&self) -> Arc<Self> {
        let state = self.state();
        let left = State {
            sandboxes: state.sandboxes.clone(),
            snapshots: state.snapshots.clone(),
            pools: state.pools.clone(),
            ..State::default()
        };
        Arc::new(Self { state: Mutex::new(left), held: watch::Sender::default() })
    }

    async fn let_others_run(&self) {
        let yields = match &mut self.state().faults {
            Some((faults, random)) => random.below(faults.yields_max + 1),
            None => 0,
        };
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
    }

    /// Whether this commit reports success, and whether it takes effect.
    fn fate(&self) -> (bool, bool) {
        let mut state = self.state();
        if state.full {
            return (false, false);
        }
        let Some((faults, random)) = &mut state.faults else { return (true, true) };
        let works = random.below(100) >= faults.fail_percent;
        (works, works || random.below(2) == 0)
    }
}

impl State {
    fn apply(&mut self, change: Change) {
        match change {
            Change::PutSandbox(mut sandbox) => {
                if let Source::Image(image) = &mut sandbox.spec.source {
                    image.auth = None;
                }
                self.sandboxes.insert(sandbox.id.clone(), *sandbox);
            }
            Change::DropSandbox(id) => {
                self.sandboxes.remove(&id);
            }
            Change::PutSnapshot(snapshot) => {
                self.snapshots.insert(snapshot.id.clone(), *snapshot);
            }
            Change::DropSnapshot(id) => {
                self.snapshots.remove(&id);
            }
            Change::PutPool(pool) => {
                self.pools.insert(pool.name.clone(), *pool);
            }
            Change::DropPool(name) => {
                self.pools.remove(&name);
            }
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn load(&self) -> Result<Loaded, StoreError> {
        self.let_others_run().await;
        Ok(self.contents())
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        drop(self.held.subscribe().wait_for(|held| !held).await);
        self.let_others_run().await;
        let (reported, effective) = self.fate();
        if effective {
            let mut state = self.state();
            state.commits.push(changes.len());
            changes.into_iter().for_each(|change| state.apply(change));
        }
        self.let_others_run().await;
        let full = StoreError { doing: "writing records", cause: "no space left".to_owned() };
        if reported { Ok(()) } else { Err(full) }
    }
}
