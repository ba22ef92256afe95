//! The record of one sandbox.

use crate::id::{SandboxId, TenantId};
use crate::lifecycle::Lifecycle;
use crate::spec::SandboxSpec;
use crate::time::Timestamp;

/// All we know of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its name.
    pub id: SandboxId,
    /// Whose it is.
    pub tenant: TenantId,
    /// What was asked for; labels may be changed later.
    pub spec: SandboxSpec,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// Unguessable word that opens this sandbox's ports to whoever holds it.
    pub access_token: String,
    /// The pool whose stock it is, until somebody claims it.
    pub stock_of: Option<String>,
    /// Where it stands.
    pub life: Lifecycle,
}
