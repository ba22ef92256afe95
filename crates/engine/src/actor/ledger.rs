//! Which records differ from the disk, and when to try to write them.

use std::collections::BTreeSet;
use std::time::Duration;

use atoll_core::{SandboxId, SnapshotId};
use tokio::time::Instant;

/// Records in one commit; more wait for the next one.
const BATCH_MAX: usize = 1024;
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Sandbox(SandboxId),
    Snapshot(SnapshotId),
    Pool(String),
}

#[derive(Default)]
pub(super) struct Ledger {
    dirty: BTreeSet<Key>,
    batch: Option<BTreeSet<Key>>,
    /// Somebody waits for an answer: don't wait out the pause after a failure.
    urgent: bool,
    pause: Duration,
    pause_until: Option<Instant>,
}

impl Ledger {
    /// `key` must be written.
    pub(super) fn mark(&mut self, key: Key) {
        self.dirty.insert(key);
    }

    /// `key` must be written and a caller waits for it.
    pub(super) fn mark_urgent(&mut self, key: Key) {
        self.urgent = true;
        self.dirty.insert(key);
    }

    /// The disk may not hold the present version of `key`.
    pub(super) fn is_unsaved(&self, key: &Key) -> bool {
        self.dirty.contains(key) || self.batch.as_ref().is_some_and(|batch| batch.contains(key))
    }

    /// `key` changed after the last commit began.
    pub(super) fn is_dirty(&self, key: &Key) -> bool {
        self.dirty.contains(key)
    }

    pub(super) fn is_committing(&self) -> bool {
        self.batch.is_some()
    }

    /// The keys of the next commit, if one is due.
    pub(super) fn begin(&mut self) -> Option<BTreeSet<Key>> {
        let paused = self.pause_until.is_some() && !self.urgent;
        if self.batch.is_some() || self.dirty.is_empty() || paused {
            return None;
        }
        let rest = match self.dirty.iter().nth(BATCH_MAX).cloned() {
            Some(first_left) => self.dirty.split_off(&first_left),
            None => BTreeSet::new(),
        };
        self.urgent &= !rest.is_empty();
        let batch = std::mem::replace(&mut self.dirty, rest);
        self.batch = Some(batch.clone());
        Some(batch)
    }

    /// The commit ended; what wasn't written is tried again after a growing pause.
    pub(super) fn end(&mut self, worked: bool) -> BTreeSet<Key> {
        let batch = self.batch.take().unwrap_or_default();
        if worked {
            self.pause = Duration::ZERO;
            self.pause_until = None;
        } else {
            self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            self.pause_until = Some(Instant::now() + self.pause);
            self.dirty.extend(batch.iter().cloned());
        }
        batch
    }

    /// Returns when the pause after a failure is over; never without one.
    pub(super) async fn pause_over(&self) {
        match self.pause_until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn pause_is_over(&mut self) {
        self.pause_until = None;
    }
}
