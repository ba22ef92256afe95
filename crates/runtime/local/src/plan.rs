//! What a sandbox is made of, written into its folder before anything is made.

use std::path::PathBuf;

use atoll_image::{Image, ImageConfig};
use serde::{Deserialize, Serialize};

use crate::protocol::{Launcher, Root};

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
