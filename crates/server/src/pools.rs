//! Pools that the configuration declares, and pools whose template was built anew.

use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Pool, PoolStatus, Pools, Templates};
use atoll_core::TenantId;
use tokio::task::JoinSet;

use crate::config;

/// How often templates are looked at for a newer build; a look reads memory only.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Declares each configured pool as soon as its template is there, and keeps every pool at its
/// template's newest build, as long as the tasks are held.
pub(crate) fn keep(
    declared: &[config::Pool],
    templates: &Arc<dyn Templates>,
    pools: &Arc<dyn Pools>,
    tenant: &TenantId,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for pool in declared {
        let (templates, pools) = (templates.clone(), pools.clone());
        tasks.spawn(declare(pool.clone(), templates, pools, tenant.clone()));
    }
    tasks.spawn(follow(templates.clone(), pools.clone(), tenant.clone()));
    tasks
}

async fn declare(
    pool: config::Pool,
    templates: Arc<dyn Templates>,
    pools: Arc<dyn Pools>,
    tenant: TenantId,
) {
    let template = pool.template.as_ref().unwrap_or(&pool.name);
    let mut told = String::new();
    loop {
        let declared = match templates.resolve(&tenant, template).await {
            Ok(spec) => {
                let (name, size) = (pool.name.clone(), pool.size);
                pools.set_pool(Pool { name, spec, size }).await
            }
            Err(error) => Err(error),
        };
        let Err(error) = declared else { return };
        if told != error.message() {
            tracing::warn!(pool = pool.name, %error, "can't be filled yet");
            error.message().clone_into(&mut told);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn follow(templates: Arc<dyn Templates>, pools: Arc<dyn Pools>, tenant: TenantId) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        for status in pools.pools().await {
            refresh(&status, &*templates, &*pools, &tenant).await;
        }
    }
}

async fn refresh(
    status: &PoolStatus,
    templates: &dyn Templates,
    pools: &dyn Pools,
    tenant: &TenantId,
) {
    let Some(origin) = &status.pool.spec.template else { return };
    let name = origin.alias.as_ref().unwrap_or(&origin.id);
    // A template that is gone keeps its pool: what was made of it still works.
    let Ok(spec) = templates.resolve(tenant, name).await else { return };
    if spec.template.as_ref().is_some_and(|newest| newest.build != origin.build) {
        let pool = Pool { spec, ..Pool::clone(&status.pool) };
        if let Err(error) = pools.set_pool(pool).await {
            tracing::warn!(pool = status.pool.name, %error, "stays at an older build");
        }
    }
}
