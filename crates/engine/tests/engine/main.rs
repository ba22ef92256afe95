//! What users and operators can rely on, one promise per test.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop at once")]

mod abandoned;
mod bench;
mod claims;
mod commits;
mod contract;
mod deadlines;
mod failures;
mod forks;
mod life;
mod limits;
mod pools;
mod reach;
mod recovery;
mod samples;
mod snapshots;
mod waking;
