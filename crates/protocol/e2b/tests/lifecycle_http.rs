//! The server half over HTTP, above a real engine and a simulated machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "lifecycle_http/agent.rs"]
mod agent;
#[path = "lifecycle_http/beside.rs"]
mod beside;
#[path = "lifecycle_http/world.rs"]
mod world;

#[path = "lifecycle_http/creation.rs"]
mod creation;
#[path = "lifecycle_http/data.rs"]
mod data;
#[path = "lifecycle_http/ends.rs"]
mod ends;
#[path = "lifecycle_http/kruise.rs"]
mod kruise;
#[path = "lifecycle_http/life.rs"]
mod life;
#[path = "lifecycle_http/lists.rs"]
mod lists;
#[path = "lifecycle_http/permits.rs"]
mod permits;
#[path = "lifecycle_http/services.rs"]
mod services;
