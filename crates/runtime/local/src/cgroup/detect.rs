//! Which control group trees this host has.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// v1 controllers we use when v2 doesn't have them.
const V1_CONTROLLERS: [&str; 4] = ["cpu", "memory", "pids", "freezer"];
/// Controllers that limits need.
const LIMITS: [&str; 3] = ["cpu", "memory", "pids"];

/// The trees and what each is used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Root of the v2 tree.
    pub(crate) unified: Option<PathBuf>,
    /// Limits are set there and not on v1.
    pub(crate) v2_limits: bool,
    /// Roots of the v1 trees in use, by controller.
    pub(crate) v1: BTreeMap<String, PathBuf>,
    /// Roots of every tree, used or not: OCI runtimes make groups in all of them.
    pub(super) all: Vec<PathBuf>,
}

impl Layout {
    /// Reads this host's mounts.
    pub(crate) fn detect() -> std::io::Result<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        Ok(Self::from_mounts(&mounts, |root| {
            std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default()
        }))
    }

    /// The layout that a list of mounts shows; `controllers` tells which a v2 root has.
    pub(super) fn from_mounts(mounts: &str, controllers: impl Fn(&PathBuf) -> String) -> Self {
        let mut layout =
            Self { unified: None, v2_limits: false, v1: BTreeMap::new(), all: Vec::new() };
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, target, kind, options, ..] = fields[..] else { continue };
            if matches!(kind, "cgroup" | "cgroup2") {
                layout.all.push(target.into());
            }
            match kind {
                "cgroup2" if layout.unified.is_none() => layout.unified = Some(target.into()),
                "cgroup" => {
                    for name in options.split(',').filter(|o| V1_CONTROLLERS.contains(o)) {
                        layout.v1.insert(name.to_owned(), target.into());
                    }
                }
                _ => {}
            }
        }
        if let Some(root) = &layout.unified {
            let has = controllers(root);
            let has: Vec<&str> = has.split_whitespace().collect();
            layout.v2_limits = LIMITS.iter().all(|name| has.contains(name));
            layout.v1.remove("freezer");
        }
        if layout.v2_limits {
            layout.v1.clear();
        }
        layout
    }

    /// Every tree in use, each once.
    pub(super) fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        let mut roots: Vec<&PathBuf> = self.unified.iter().chain(self.v1.values()).collect();
        roots.sort();
        roots.dedup();
        roots.into_iter()
    }

    /// Limits that can't be set on this host.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let has = |name: &&str| self.v2_limits || self.v1.contains_key(*name);
        LIMITS.into_iter().filter(|name| !has(name)).collect()
    }

    /// In words, for people.
    pub(crate) fn describe(&self) -> &'static str {
        match (&self.unified, self.v2_limits, self.v1.is_empty()) {
            (Some(_), true, _) => "v2",
            (Some(_), false, _) => "hybrid (limits on v1, freezer on v2)",
            (None, _, false) => "v1",
            (None, _, true) => "none",
        }
    }
}
