//! Domain requests.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_core::{Expiry, Phase, SandboxId, SandboxSpec, Timestamp};

/// A sandbox to make.
#[derive(Clone, Debug)]
pub struct Create {
    /// What it should be.
    pub spec: SandboxSpec,
    /// How long it may live; `None`: until it is removed.
    pub lifetime: Option<Duration>,
    /// What happens then.
    pub on_expiry: Expiry,
    /// Whether and how it may be taken from a warm pool.
    pub claim: Claim,
}

impl Create {
    /// A sandbox that lives until it is removed, from stock when there is some.
    pub fn new(spec: SandboxSpec) -> Self {
        Self { spec, lifetime: None, on_expiry: Expiry::Kill, claim: Claim::default() }
    }
}

/// How a new sandbox may come from a warm pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Take it from this pool, even when its image or mounts must then be replaced in place.
    /// `None`: from any pool whose stock is just what is wanted.
    pub pool: Option<String>,
    /// Make it from nothing when there is no stock; otherwise wait for stock.
    pub create_on_no_stock: bool,
    /// How long to wait for stock.
    pub patience: Duration,
}

impl Default for Claim {
    fn default() -> Self {
        Self { pool: None, create_on_no_stock: true, patience: Duration::from_secs(60) }
    }
}

/// Which sandboxes to list. Empty lists match everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Any of these phases.
    pub phases: Vec<Phase>,
    /// All of these labels.
    pub metadata: BTreeMap<String, String>,
    /// Made from the template with this id or name.
    pub template: Option<String>,
    /// Created at this time or later.
    pub created_from: Option<Timestamp>,
    /// Oldest first instead of newest first.
    pub oldest_first: bool,
}

/// Which snapshots to list.
#[derive(Clone, Debug, Default)]
pub struct SnapshotFilter {
    /// Taken from this sandbox.
    pub sandbox: Option<SandboxId>,
    /// With exactly this name.
    pub name: Option<String>,
}

/// A window on a long list, newest first.
#[derive(Clone, Copy, Debug)]
pub struct Paging {
    /// Items to leave out first.
    pub skip: usize,
    /// Items to return at the most.
    pub take: usize,
}

/// A window's items and how many there are in all.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The items asked for.
    pub items: Vec<T>,
    /// Number of matching items in all.
    pub total: usize,
}

/// Changes to labels: `None` removes one, `Some` sets it.
pub type MetadataPatch = BTreeMap<String, Option<String>>;
