//! What is known of templates and builds, and how it is written down.

use std::collections::BTreeMap;

use atoll_core::{TenantId, Timestamp};
use serde::{Deserialize, Serialize};

mod made;
mod moment;

pub use made::{Made, Setting, Source};

use crate::reference::DEFAULT_TAG;

/// One template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    /// 20 lower-case letters and digits.
    pub id: String,
    /// Whose it is; `None` for one that the server brings along.
    pub tenant: Option<String>,
    /// Its names, the main one first.
    pub names: Vec<String>,
    /// Every tenant may use it.
    pub public: bool,
    /// Builds by tag.
    pub tags: BTreeMap<String, Tag>,
    /// When it was first asked for.
    #[serde(with = "moment")]
    pub created_at: Timestamp,
    /// When anything of it changed last.
    #[serde(with = "moment")]
    pub updated_at: Timestamp,
    /// Builds that were ever asked for.
    pub build_count: u64,
    /// Sandboxes made from it; counted from memory, so a crash may lose the newest.
    pub spawn_count: u64,
    /// When the newest of them was made.
    #[serde(with = "moment::maybe")]
    pub last_spawned_at: Option<Timestamp>,
}

impl Template {
    /// Whether `tenant` made it.
    pub fn is_of(&self, tenant: &TenantId) -> bool {
        self.tenant.as_deref() == Some(tenant.as_str())
    }

    /// Whether `tenant` may use it.
    pub fn is_open_to(&self, tenant: &TenantId) -> bool {
        self.public || self.is_of(tenant)
    }

    /// The build that a creation without a tag gets.
    pub fn default_build(&self) -> Option<&str> {
        self.tags.get(DEFAULT_TAG).map(|tag| tag.build.as_str())
    }

    /// Its names with the namespace they belong to.
    pub fn full_names(&self) -> Vec<String> {
        let full = |name: &String| match &self.tenant {
            Some(tenant) => format!("{tenant}/{name}"),
            None => name.clone(),
        };
        self.names.iter().map(full).collect()
    }
}

/// What a tag points to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// The build.
    pub build: String,
    /// Since when.
    #[serde(with = "moment")]
    pub created_at: Timestamp,
}

/// Where a build stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Asked for, or in the queue.
    Waiting,
    /// At work.
    Building,
    /// Sandboxes can be made from it.
    Ready,
    /// It went wrong; the reason says how.
    Error,
}

/// Why a build went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What happened.
    pub message: String,
    /// Where: `base`, the number of a step from 1, or `finalize`.
    pub step: Option<String>,
}

/// One build of a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// A UUID.
    pub id: String,
    /// The template's id.
    pub template: String,
    /// Whose it is; `None` for a built-in one.
    pub tenant: Option<String>,
    /// Tags that it takes over when it is ready.
    pub tags: Vec<String>,
    /// Where it stands.
    pub status: Status,
    /// Its steps are known: it is in the queue or further.
    pub begun: bool,
    /// Why it went wrong, if it did.
    pub reason: Option<Reason>,
    /// Processors of its sandboxes, if said.
    pub cpu_count: Option<u32>,
    /// Memory of its sandboxes in MiB, if said.
    pub memory_mib: Option<u32>,
    /// When it was asked for.
    #[serde(with = "moment")]
    pub created_at: Timestamp,
    /// When its status changed last.
    #[serde(with = "moment")]
    pub updated_at: Timestamp,
    /// When it became ready or went wrong.
    #[serde(with = "moment::maybe")]
    pub finished_at: Option<Timestamp>,
    /// What came of it.
    pub made: Option<Made>,
}

impl Build {
    /// Neither ready nor gone wrong.
    pub fn is_pending(&self) -> bool {
        match self.status {
            Status::Waiting | Status::Building => true,
            Status::Ready | Status::Error => false,
        }
    }
}

/// A snapshot that builds made: whose it is, and which one it stands on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layer {
    pub(crate) owner: String,
    pub(crate) parent: Option<String>,
}

/// What a chain of steps led to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cached {
    pub(crate) tenant: String,
    pub(crate) made: Made,
    #[serde(with = "moment")]
    pub(crate) used_at: Timestamp,
}

/// What a user's own snapshot was taken from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) tenant: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) user: Option<String>,
    pub(crate) workdir: Option<String>,
    /// Command, milliseconds between tries, milliseconds in all.
    pub(crate) ready: Option<(String, u64, u64)>,
    pub(crate) cpu_millis: Option<u64>,
    pub(crate) memory_bytes: Option<u64>,
    /// Id, name and build.
    pub(crate) template: Option<(String, Option<String>, String)>,
}
