//! The embedded implementation of `Control`: one loop over a runtime, a store and a clock.
//!
//! # Flow
//! A request becomes a *proposal*: the record as it would be. Proposals and facts that are not on
//! disk yet are committed together, one commit at a time; then proposals become the record and
//! their callers are answered. What a runtime did or saw is a *fact*: it is shown at once and
//! written with the next commit, because a restart would observe it again.
//!
//! # Guarantees
//! Nothing is acknowledged before it is durable. At most one action per sandbox is in flight. A
//! removal is sent only after the wish for it is durable. Every decision is made again from the
//! record alone, so a lost wake-up, a failed commit or a crash only delays it.

mod actor;
mod config;
mod counters;
mod engine;
mod ids;
mod interest;
pub mod seam;
mod view;

pub use actor::{POOLS_MAX, STOCK_TENANT};
pub use config::{EngineConfig, Random};
pub use counters::{EngineStats, Latency};
pub use engine::{Engine, POOL_NAME_BYTES_MAX, POOL_SIZE_MAX, is_pool_name};
pub use seam::{Clock, Runtime, Store};
