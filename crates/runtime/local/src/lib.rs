//! Sandboxes on one Linux machine.
//!
//! The server prepares folders and control groups; the [`spawner`], a single-threaded process that
//! outlives it, forks sandboxes; the first process of a sandbox builds its own walls and becomes
//! the agent. All `unsafe` is in `sys`.

mod agent;
mod cgroup;
mod claim;
mod client;
mod config;
mod create;
mod dial;
pub mod doctor;
mod files;
mod live;
mod logs;
mod net;
mod plan;
mod protocol;
mod random;
mod rest;
mod runtime;
mod snapshots;
pub mod spawner;
mod sys;
mod trash;
mod volumes;
mod wanted;

pub use config::LocalConfig;
pub use net::{NetworkConfig, Uplink, host_resolvers};
pub use runtime::{LocalRuntime, StartError};
