//! Templates: names for prepared sandboxes.

use async_trait::async_trait;
use atoll_core::{Result, SandboxSpec, TenantId};

/// Turns a template's name into what to make.
#[async_trait]
pub trait Templates: Send + Sync + 'static {
    /// What `reference` (`[namespace/]name[:tag]`, a template's id, or a snapshot's id) means for
    /// this tenant; `spec.template` says what was chosen. Waits, up to its own patience, for a
    /// built-in template that is still being built.
    ///
    /// # Errors
    /// `Invalid` for what is no reference, `NotFound` for an unknown one, `Unavailable` with
    /// reason `TEMPLATE_BUILDING` when it isn't there yet.
    async fn resolve(&self, tenant: &TenantId, reference: &str) -> Result<SandboxSpec>;
}
