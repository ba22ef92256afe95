//! Numbers for the operator.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What an engine has done and is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Sandboxes accepted.
    pub creates: u64,
    /// Sandboxes whose end was wished, by a user or by the clock.
    pub kills: u64,
    /// Sandboxes that failed.
    pub failures: u64,
    /// Actions in flight now.
    pub in_flight: u64,
    /// Commits that worked.
    pub commits: u64,
    /// Records written by them.
    pub changes: u64,
    /// Commits that didn't work.
    pub commit_failures: u64,
    /// Sandboxes that users can see now.
    pub sandboxes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) creates: AtomicU64,
    pub(crate) kills: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) changes: AtomicU64,
    pub(crate) commit_failures: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self, sandboxes: usize) -> EngineStats {
        EngineStats {
            creates: self.creates.load(Relaxed),
            kills: self.kills.load(Relaxed),
            failures: self.failures.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            commits: self.commits.load(Relaxed),
            changes: self.changes.load(Relaxed),
            commit_failures: self.commit_failures.load(Relaxed),
            sandboxes: sandboxes as u64,
        }
    }
}

/// Adds `by` to a counter.
pub(crate) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Relaxed);
}
