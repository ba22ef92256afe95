//! Making a sandbox that runs what a record says.
//!
//! A pool's sandbox becomes a tenant's by getting the tenant's record, so this is how a claim
//! reaches it. What the agent can be told is told, in one request; whatever else is different
//! means that another one must take its place.

use std::io;
use std::time::Duration;

use atoll_core::{Observed, Sandbox};
use atoll_engine::seam::RuntimeError;

use crate::agent;
use crate::create::start_failure;
use crate::live::Live;
use crate::plan::Plan;
use crate::runtime::Local;

/// How long an agent may take to accept what it is told.
const CONFIGURE_TIMEOUT: Duration = Duration::from_secs(10);

impl Local {
    /// What a sandbox that runs is, once it is what `sandbox` says; nothing when it must be made
    /// anew. The caller holds its lock.
    pub(crate) async fn fit(
        self: &std::sync::Arc<Self>,
        sandbox: &Sandbox,
    ) -> Result<Option<Observed>, RuntimeError> {
        let id = sandbox.id.as_str();
        let Some(live) = self.live(id) else { return Ok(None) };
        let Some(plan) = live.plan() else { return Ok(None) };
        if live.has_ended() {
            // The end of somebody else's sandbox is no end of this one.
            let own = plan.tenant == sandbox.tenant.as_str();
            return if own { self.seen(id).await.map(Some) } else { Ok(None) };
        }
        let Some(shape) = &plan.shape else {
            // Of an earlier version, which had no claims: it is what it was made as.
            return self.wait_up(sandbox, &live).await.map(Some);
        };
        if *shape != self.shape(sandbox).map_err(|e| start_failure(&e))? {
            return Ok(None);
        }
        if !live.has_answered() {
            let up = self.wait_up(sandbox, &live).await?;
            if up != Observed::Running {
                return Ok(Some(up));
            }
        }
        if self.cgroups.is_frozen(id).unwrap_or(false) {
            return Ok(Some(Observed::Paused));
        }
        self.configure(sandbox, &live, plan).await
    }

    /// Whether it has been told nothing but what its maker, who has this record, wanted.
    pub(crate) async fn is_untouched(&self, sandbox: &Sandbox) -> bool {
        let Some(live) = self.live(sandbox.id.as_str()) else { return false };
        let own = live.plan().is_some_and(|plan| plan.tenant == sandbox.tenant.as_str());
        let asked = tokio::time::timeout(CONFIGURE_TIMEOUT, live.is_untouched());
        own && matches!(asked.await, Ok(Ok(true)))
    }

    async fn configure(
        &self,
        sandbox: &Sandbox,
        live: &Live,
        plan: &Plan,
    ) -> Result<Option<Observed>, RuntimeError> {
        let body = agent::defaults(sandbox, &plan.base.defaults);
        let claim = plan.tenant != sandbox.tenant.as_str();
        let telling = live.configure(&plan.key, &body, claim);
        let told = tokio::time::timeout(CONFIGURE_TIMEOUT, telling).await;
        match told {
            Ok(Ok(Ok(()))) => Ok(Some(Observed::Running)),
            Ok(Ok(Err(problem))) => Err(start_failure(&io::Error::other(problem))),
            // An agent that doesn't listen is of no use to anybody.
            Ok(Err(error)) => {
                tracing::warn!(%error, sandbox = %sandbox.id, "replacing a sandbox");
                Ok(None)
            }
            Err(_) => {
                tracing::warn!(sandbox = %sandbox.id, "replacing a sandbox: its agent is silent");
                Ok(None)
            }
        }
    }
}
