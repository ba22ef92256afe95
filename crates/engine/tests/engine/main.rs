//! What users and operators can rely on, one promise per test.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop at once")]

mod bench;
mod commits;
mod contract;
mod deadlines;
mod failures;
mod life;
mod limits;
mod reach;
mod recovery;
mod snapshots;
