//! Warm pools: sandboxes made before anybody asked.

use std::sync::Arc;

use async_trait::async_trait;
use atoll_core::{Result, SandboxSpec};

/// How many sandboxes of what kind are kept ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name; claims may ask for it.
    pub name: String,
    /// What each of its sandboxes is.
    pub spec: SandboxSpec,
    /// How many to keep ready.
    pub size: usize,
}

/// A pool and how it does.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// What was asked for.
    pub pool: Arc<Pool>,
    /// Sandboxes ready to be claimed.
    pub ready: usize,
    /// Sandboxes being made for it.
    pub starting: usize,
    /// Callers waiting for stock.
    pub waiting: usize,
    /// Creations that took its stock as it was since the server started.
    pub hits: u64,
    /// Creations that took a place of its stock, but needed another sandbox in it.
    pub replaced: u64,
    /// Creations that wanted it while there was no stock.
    pub misses: u64,
    /// Why its newest sandbox could not be made, until one could.
    pub trouble: Option<String>,
}

/// Declares pools and tells how they do.
#[async_trait]
pub trait Pools: Send + Sync + 'static {
    /// Declares or changes a pool; stock that no longer fits is replaced. Size zero empties it.
    async fn set_pool(&self, pool: Pool) -> Result<()>;

    /// Forgets a pool and removes its stock; one that isn't there is fine.
    async fn remove_pool(&self, name: &str) -> Result<()>;

    /// All pools by name.
    async fn pools(&self) -> Vec<PoolStatus>;
}
