//! What a sandbox is made of, written into its folder before anything is made.

use std::path::PathBuf;
use std::time::Duration;

use atoll_core::{Network, ReadyCheck, Resources, Sandbox, Source};
use atoll_image::{Image, ImageConfig};
use serde::{Deserialize, Serialize};

use crate::protocol::{Bind, Launcher, Root};

/// Name of the plan in a sandbox's folder and of the description in a snapshot's.
pub(crate) const FILE: &str = "plan.json";

/// Files and defaults of an image or a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Base {
    pub(crate) trees: Vec<Tree>,
    pub(crate) defaults: ImageConfig,
}

/// One overlay's read-only layers, top-most first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tree {
    pub(crate) target: PathBuf,
    pub(crate) lowers: Vec<PathBuf>,
}

/// The plan of one sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) base: Base,
    pub(crate) launcher: Launcher,
    /// Absent in plans of earlier versions.
    #[serde(default)]
    pub(crate) shape: Option<Shape>,
    /// Whose it was when it was made.
    #[serde(default)]
    pub(crate) tenant: String,
    /// Opens the agent's defaults to whoever says it.
    #[serde(default)]
    pub(crate) key: String,
}

impl Plan {
    /// The folders it has from outside.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = &Bind> {
        self.shape.iter().flat_map(|shape| &shape.mounts)
    }
}

/// What can't be changed while a sandbox runs. Two records of equal shape differ only in what the
/// agent can be told at any time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    source: String,
    entrypoint: Vec<String>,
    cpu_millis: Option<u64>,
    memory_bytes: Option<u64>,
    pids: Option<u64>,
    pub(crate) mounts: Vec<Bind>,
    pub(crate) launcher: Launcher,
    pub(crate) network: bool,
    ready: Option<(String, Duration, Duration)>,
}

impl Shape {
    /// The shape of `sandbox` within `resources`, with its `mounts` found.
    pub(crate) fn of(
        sandbox: &Sandbox,
        resources: Resources,
        mounts: Vec<Bind>,
        launcher: Launcher,
    ) -> Self {
        let spec = &sandbox.spec;
        let ready = |check: &ReadyCheck| (check.command.clone(), check.every, check.within);
        Self {
            source: match &spec.source {
                Source::Image(image) => format!("image {}", image.reference),
                Source::Snapshot(id) => format!("snapshot {id}"),
            },
            entrypoint: spec.entrypoint.clone(),
            cpu_millis: resources.cpu_millis,
            memory_bytes: resources.memory_bytes,
            pids: resources.pids,
            mounts,
            launcher,
            network: spec.network == Network::Internet,
            ready: spec.ready.as_ref().map(ready),
        }
    }
}

impl Base {
    pub(crate) fn of_image(image: &Image) -> Self {
        let tree = |root: &atoll_image::OverlayRoot| Tree {
            target: root.target.clone(),
            lowers: root.lowers.clone(),
        };
        Self { trees: image.roots.iter().map(tree).collect(), defaults: image.config.clone() }
    }

    /// The overlays of a sandbox in `dir`.
    pub(crate) fn roots(&self, dir: &std::path::Path) -> Vec<Root> {
        let root = |(number, tree): (usize, &Tree)| Root {
            target: tree.target.clone(),
            lowers: tree.lowers.clone(),
            writable: writable(dir, number),
        };
        self.trees.iter().enumerate().map(root).collect()
    }
}

/// The writable folder of overlay `number`.
pub(crate) fn writable(dir: &std::path::Path, number: usize) -> PathBuf {
    dir.join(format!("files-{number}"))
}
