//! Sandboxes by id alone.
//!
//! The data path checks a sandbox's own token, so its requests name no tenant. Ids are unique over
//! all tenants, and a sandbox never changes hands once a tenant can see it, so that whose it is
//! may be remembered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use atoll_control::{Control, Filter, Paging};
use atoll_core::{Phase, Sandbox, SandboxId, TenantId};

/// Owners remembered; when there are more, all are looked up anew.
const OWNERS_MAX: usize = 16 * 1024;
/// Sandboxes looked at in one search; all tenants have equal shares of it, so that none can hide
/// another's behind its own.
const SEARCHED_MAX: usize = 16 * 1024;
/// The least share.
const SHARE_MIN: usize = 64;
/// A search lets other work go on after so many.
const SEARCHED_AT_ONCE: usize = 256;

/// Finds sandboxes of any tenant. Cheap to clone.
#[derive(Clone)]
pub struct Directory {
    control: Arc<dyn Control>,
    tenants: Arc<Vec<TenantId>>,
    owners: Arc<Mutex<HashMap<SandboxId, TenantId>>>,
}

impl Directory {
    /// A directory of these tenants' sandboxes.
    pub fn new(control: Arc<dyn Control>, tenants: Arc<Vec<TenantId>>) -> Self {
        Self { control, tenants, owners: Arc::default() }
    }

    /// The sandbox, whoever's it is. Whether the caller may reach it is for the caller to check.
    pub(crate) async fn find(&self, id: &SandboxId) -> Option<Arc<Sandbox>> {
        if let Some(owner) = self.owner(id) {
            return self.control.get(&owner, id).await.ok();
        }
        for tenant in self.tenants.iter() {
            if let Ok(sandbox) = self.control.get(tenant, id).await {
                self.remember(id, tenant);
                return Some(sandbox);
            }
        }
        None
    }

    /// The first running or paused sandbox that `fits`, among a bounded number of the newest of
    /// each tenant.
    pub(crate) async fn search(
        &self,
        fits: impl Fn(&Sandbox) -> bool + Send,
    ) -> Option<Arc<Sandbox>> {
        let phases = vec![Phase::Running, Phase::Pausing, Phase::Paused, Phase::Resuming];
        let filter = Filter { phases, ..Filter::default() };
        let take = share(self.tenants.len());
        let mut searched = 0;
        for tenant in self.tenants.iter() {
            let Ok(page) = self.control.list(tenant, &filter, Paging { skip: 0, take }).await
            else {
                continue;
            };
            for sandbox in page.items {
                if fits(&sandbox) {
                    return Some(sandbox);
                }
                searched += 1;
                if searched % SEARCHED_AT_ONCE == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
        None
    }

    fn owner(&self, id: &SandboxId) -> Option<TenantId> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn remember(&self, id: &SandboxId, tenant: &TenantId) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if owners.len() >= OWNERS_MAX {
            owners.clear();
        }
        owners.insert(id.clone(), tenant.clone());
    }
}

/// How many sandboxes of one tenant a search looks at.
fn share(tenants: usize) -> usize {
    (SEARCHED_MAX / tenants.max(1)).max(SHARE_MIN)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use atoll_engine::{Engine, EngineConfig};
    use atoll_runtime_sim::SimRuntime;
    use atoll_testkit::{FaultyStore, ManualClock, sample};
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_long_search_gives_way_and_still_finds_everybody_s() {
        let store = FaultyStore::new();
        let clock = ManualClock::new(sample::NOW);
        let engine = Engine::start(EngineConfig::default(), SimRuntime::new(), store, clock);
        let engine = engine.await.unwrap();
        let (alice, bob) = (sample::tenant("alice"), sample::tenant("bob"));
        let make = async |tenant: &TenantId| {
            let patience = Duration::from_secs(10);
            engine.create_and_wait(tenant, sample::create(), patience).await.unwrap()
        };
        let wanted = make(&bob).await;
        let tenants = Arc::new(vec![alice.clone(), bob]);
        let directory = Directory::new(Arc::new(engine.clone()), tenants);
        let fits = |sandbox: &Sandbox| sandbox.id == wanted.id;
        make(&alice).await;
        let found = directory.search(fits).now_or_never().expect("few are looked at in one go");
        assert_eq!(found.unwrap().id, wanted.id);
        for _ in 0..SEARCHED_AT_ONCE {
            make(&alice).await;
        }
        assert!(directory.search(fits).now_or_never().is_none(), "many are not");
        assert_eq!(directory.search(fits).await.unwrap().id, wanted.id);
    }

    #[test]
    fn every_tenant_has_a_share_of_a_search() {
        assert_eq!([0, 1, 2].map(share), [SEARCHED_MAX, SEARCHED_MAX, SEARCHED_MAX / 2]);
        assert_eq!(share(usize::MAX), SHARE_MIN);
    }
}
