//! Domain requests.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_core::{Expiry, Phase, SandboxId, SandboxSpec};

/// A sandbox to make.
#[derive(Clone, Debug)]
pub struct Create {
    /// What it should be.
    pub spec: SandboxSpec,
    /// How long it may live; `None`: until it is removed.
    pub lifetime: Option<Duration>,
    /// What happens then.
    pub on_expiry: Expiry,
}

/// Which sandboxes to list. Empty lists match everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Any of these phases.
    pub phases: Vec<Phase>,
    /// All of these labels.
    pub metadata: BTreeMap<String, String>,
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
