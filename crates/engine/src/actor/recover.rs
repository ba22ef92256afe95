//! Going on where a former engine stopped or crashed.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_core::{Error, Phase, Result, SnapshotId, SnapshotState};

use super::Actor;
use super::ledger::Key;
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
        for sandbox in loaded.sandboxes {
            let id = sandbox.id.clone();
            if sandbox.life.desired() != atoll_core::Desired::Gone {
                *self.living.entry(sandbox.tenant.clone()).or_default() += 1;
            }
            let mut record = Record::new(sandbox.clone());
            record.interrupted = matches!(sandbox.life.phase(), Phase::Queued | Phase::Starting);
            self.sandboxes.insert(id.clone(), record);
            self.put(&id, sandbox);
        }
        self.compare(listed.into_iter().collect(), self.epoch);
        self.recover_snapshots(loaded.snapshots, kept.into_iter().collect());
        Ok(())
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
