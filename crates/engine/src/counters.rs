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
    /// Time from a claim of stock until the sandbox runs as its owner asked.
    pub claims: Latency,
}

/// Times as a histogram that counts upwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many took at most as long as the bound in the same place of [`Latency::BOUNDS`].
    pub buckets: [u64; 12],
    /// How many there were.
    pub count: u64,
    /// Their sum in microseconds.
    pub micros: u64,
}

impl Latency {
    /// Upper bounds in microseconds.
    pub const BOUNDS: [u64; 12] = [
        500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000,
        60_000_000,
    ];
}

#[derive(Debug, Default)]
pub(crate) struct LatencyCounter {
    buckets: [AtomicU64; 12],
    count: AtomicU64,
    micros: AtomicU64,
}

impl LatencyCounter {
    pub(crate) fn record(&self, micros: u64) {
        for (bucket, bound) in self.buckets.iter().zip(Latency::BOUNDS) {
            if micros <= bound {
                bucket.fetch_add(1, Relaxed);
            }
        }
        self.count.fetch_add(1, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
    }

    fn read(&self) -> Latency {
        Latency {
            buckets: std::array::from_fn(|place| self.buckets[place].load(Relaxed)),
            count: self.count.load(Relaxed),
            micros: self.micros.load(Relaxed),
        }
    }
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
    pub(crate) claims: LatencyCounter,
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
            claims: self.claims.read(),
        }
    }
}

/// Adds `by` to a counter.
pub(crate) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Relaxed);
}
