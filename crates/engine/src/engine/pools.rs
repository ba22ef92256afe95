//! `Pools`: declarations go to the actor.

use async_trait::async_trait;
use atoll_control::{Pool, PoolStatus, Pools};
use atoll_core::{Error, Lifecycle, MountSource, Result, Sandbox, SandboxId, Source};

use super::Engine;
use crate::actor::{Request, stock_tenant};
use crate::ids;

/// Sandboxes one pool may keep ready.
pub const POOL_SIZE_MAX: usize = 500;
/// Longest name of a pool; it is made of a-z, 0-9, '-', '_' and '.'.
pub const POOL_NAME_BYTES_MAX: usize = 63;

/// Whether a pool can have this name.
pub fn is_pool_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
    (1..=POOL_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

/// Refuses what a pool can't be before anything is stored.
fn check(pool: &Pool) -> Result<()> {
    if !is_pool_name(&pool.name) {
        let problem = format!("use 1 to {POOL_NAME_BYTES_MAX} of a-z, 0-9, '-', '_' and '.'");
        return Err(Error::invalid("name", problem));
    }
    if pool.size > POOL_SIZE_MAX {
        return Err(Error::invalid("size", format!("use 0 to {POOL_SIZE_MAX}")));
    }
    if matches!(&pool.spec.source, Source::Image(image) if image.auth.is_some()) {
        let problem = "a pool outlives the credentials it was made with; use an image that needs \
                       none, or a template";
        return Err(Error::invalid("image", problem));
    }
    let owned = |source: &MountSource| matches!(source, MountSource::Volume { .. });
    if pool.spec.mounts.iter().any(|mount| owned(&mount.source)) {
        let problem = "a volume belongs to a tenant, and stock belongs to nobody yet; leave it out";
        return Err(Error::invalid("mounts", problem));
    }
    Ok(())
}

#[async_trait]
impl Pools for Engine {
    async fn set_pool(&self, pool: Pool) -> Result<()> {
        check(&pool)?;
        let now = self.0.clock.now();
        let example = Sandbox {
            id: SandboxId::parse(&ids::name(now, &self.0.random))?,
            tenant: stock_tenant(),
            spec: pool.spec.clone(),
            created_at: now,
            access_token: String::new(),
            stock_of: Some(pool.name.clone()),
            life: Lifecycle::new(now, None),
        };
        self.0.runtime.check(&example).await?;
        let (name, pool) = (pool.name.clone(), Box::new(pool));
        self.ask(|reply| Request::SetPool { name, pool: Some(pool), reply }).await
    }

    async fn remove_pool(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.ask(|reply| Request::SetPool { name, pool: None, reply }).await
    }

    async fn pools(&self) -> Vec<PoolStatus> {
        // A server that is shutting down has none to offer.
        self.ask(Request::Pools).await.unwrap_or_default()
    }
}
