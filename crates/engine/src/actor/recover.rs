//! Going on where a former engine stopped or crashed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_core::{
    Desired, Error, Observed, Phase, Result, Sandbox, SandboxId, SnapshotId, SnapshotState, Wish,
};

use super::Actor;
use super::ledger::Key;
use super::pools::PoolRecord;
use super::record::{Record, SnapshotRecord};

impl Actor {
    /// Loads the records and compares them with what is really there.
    pub(crate) async fn recover(&mut self) -> Result<()> {
        let loaded = self.store.load().await.map_err(|error| {
            Error::unavailable(format!("the records of sandboxes can't be read: {error}"))
        })?;
        let listed = self.runtime.list().await.map_err(|error| {
            Error::unavailable(format!("the runtime can't tell which sandboxes exist: {error}"))
        })?;
        let kept = self.runtime.snapshots().await.map_err(|error| {
            Error::unavailable(format!("the runtime can't tell which snapshots exist: {error}"))
        })?;
        for pool in loaded.pools {
            self.pools.insert(pool.name.clone(), PoolRecord::declared(pool));
        }
        for sandbox in loaded.sandboxes {
            let id = sandbox.id.clone();
            if sandbox.life.desired() != Desired::Gone && sandbox.stock_of.is_none() {
                *self.living.entry(sandbox.tenant.clone()).or_default() += 1;
            }
            let mut record = Record::new(sandbox.clone());
            record.interrupted = matches!(sandbox.life.phase(), Phase::Queued | Phase::Starting);
            self.sandboxes.insert(id.clone(), record);
            self.put(&id, sandbox);
        }
        let listed: BTreeMap<_, _> = listed.into_iter().collect();
        self.recover_stock(&listed).await;
        self.compare(listed, self.epoch);
        self.recover_snapshots(loaded.snapshots, kept.into_iter().collect());
        (self.tend, self.sweep) = (true, true);
        Ok(())
    }

    /// A claim tells a sandbox its owner's secrets while the record of that is on its way to disk.
    /// After a crash between the two it looks like stock; the runtime knows better.
    async fn recover_stock(&mut self, listed: &BTreeMap<SandboxId, Observed>) {
        let stock = self.sandboxes.values().map(|record| record.sandbox.clone());
        let stock = stock.filter(|s| s.stock_of.is_some() && s.life.desired() != Desired::Gone);
        let stock: Vec<_> = stock.filter(|sandbox| listed.contains_key(&sandbox.id)).collect();
        let now = self.now();
        for sandbox in stock {
            if self.runtime.is_untouched(&sandbox).await {
                continue;
            }
            let mut next = Sandbox::clone(&sandbox);
            next.life.request(Wish::Kill, now).expect("killing is always allowed");
            self.put(&sandbox.id, next);
            self.ledger.mark(Key::Sandbox(sandbox.id.clone()));
        }
    }

    fn recover_snapshots(
        &mut self,
        snapshots: Vec<atoll_core::Snapshot>,
        mut kept: BTreeSet<SnapshotId>,
    ) {
        let now = self.now();
        for mut snapshot in snapshots {
            let id = snapshot.id.clone();
            let is_kept = kept.contains(&id);
            let state = match (&snapshot.state, is_kept) {
                (SnapshotState::Creating, true) => Some(SnapshotState::Ready),
                (SnapshotState::Creating, false) => {
                    let why = "the server was restarted while it was taken; take another one";
                    Some(SnapshotState::Failed(why.to_owned()))
                }
                (SnapshotState::Ready, false) => {
                    Some(SnapshotState::Failed("its files are gone".to_owned()))
                }
                (SnapshotState::Ready, true)
                | (SnapshotState::Failed(_) | SnapshotState::Deleting, _) => None,
            };
            if let Some(state) = state {
                (snapshot.state, snapshot.changed_at) = (state, now);
                self.ledger.mark(Key::Snapshot(id.clone()));
            }
            let deleting = snapshot.state == SnapshotState::Deleting;
            if snapshot.state == SnapshotState::Ready || deleting {
                kept.remove(&id);
            }
            let snapshot = Arc::new(snapshot);
            self.view.show_snapshot(&snapshot);
            let record = SnapshotRecord { snapshot, proposal: None, accepted: true, gone: false };
            self.snapshots.insert(id.clone(), record);
            if deleting {
                self.remove_snapshot(id);
            }
        }
        // Neither a record nor a use: the files of snapshots that failed or were never accepted.
        for id in kept {
            self.remove_snapshot(id);
        }
    }
}
