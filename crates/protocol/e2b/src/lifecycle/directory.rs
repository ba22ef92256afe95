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
/// Sandboxes looked at in one search, over all tenants.
const SEARCHED_MAX: usize = 16 * 1024;

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

    /// The first running or paused sandbox that `fits`, among a bounded number of the newest.
    pub(crate) async fn search(
        &self,
        fits: impl Fn(&Sandbox) -> bool + Send,
    ) -> Option<Arc<Sandbox>> {
        let phases = vec![Phase::Running, Phase::Pausing, Phase::Paused, Phase::Resuming];
        let filter = Filter { phases, ..Filter::default() };
        let mut left = SEARCHED_MAX;
        for tenant in self.tenants.iter() {
            let paging = Paging { skip: 0, take: left };
            let Ok(page) = self.control.list(tenant, &filter, paging).await else { continue };
            left = left.saturating_sub(page.items.len());
            if let Some(found) = page.items.into_iter().find(|sandbox| fits(sandbox)) {
                return Some(found);
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
