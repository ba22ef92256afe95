//! Small durable documents of services that stand beside the lifecycle.

use async_trait::async_trait;
use atoll_core::Result;

/// Named bytes by kind, written all or nothing, durable when a call answers.
#[async_trait]
pub trait Documents: Send + Sync + 'static {
    /// Writes one.
    async fn put(&self, kind: &'static str, key: &str, bytes: Vec<u8>) -> Result<()>;

    /// Removes one; one that isn't there is fine.
    async fn remove(&self, kind: &'static str, key: &str) -> Result<()>;

    /// All of a kind, by key.
    async fn all(&self, kind: &'static str) -> Result<Vec<(String, Vec<u8>)>>;
}
