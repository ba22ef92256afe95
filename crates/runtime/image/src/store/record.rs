//! What survives a restart about an image from a registry.

use crate::{Error, Image, ImageConfig, OverlayRoot, digest::Digest, layers::Layers};
use serde::{Deserialize, Serialize};
use std::{
    io::Write,
    path::{Path, PathBuf},
};

/// What is kept on disk about an image from a registry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) reference: String,
    pub(super) digest: String,
    /// Digests of the layers' tar streams, lowest first.
    pub(super) diff_ids: Vec<String>,
    pub(super) compressed_bytes: u64,
    pub(super) config: ImageConfig,
    /// Whether it was given to callers without credentials.
    pub(super) public: bool,
}

impl Record {
    /// The image whose layers lie in `layers`.
    pub(super) fn image(&self, layers: &Layers) -> Option<Image> {
        let mut lowers = Vec::new();
        for text in self.diff_ids.iter().rev() {
            let path = layers.path(&Digest::parse(text)?);
            // Overlayfs takes a directory once; a lower repetition changes nothing.
            if !lowers.contains(&path) {
                lowers.push(path);
            }
        }
        Some(Image {
            reference: self.reference.clone(),
            digest: self.digest.clone(),
            roots: vec![OverlayRoot { target: PathBuf::from("/"), lowers }],
            config: self.config.clone(),
            warnings: Vec::new(),
        })
    }

    /// Writes it so that it is there wholly or not at all.
    pub(super) fn write(&self, directory: &Path) -> Result<(), Error> {
        let path = path(directory, &self.reference);
        let unfinished = path.with_extension("new");
        let failed = |e: std::io::Error| Error::io(&self.reference, "writing record", &path, e);
        let text = serde_json::to_vec_pretty(self).map_err(|e| failed(e.into()))?;
        let mut file = std::fs::File::create(&unfinished).map_err(failed)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
        std::fs::rename(&unfinished, &path).map_err(failed)
    }
}

/// Where the record of an image lies.
pub(super) fn path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{}.json", Digest::of(name.as_bytes()).hex()))
}

/// Reads a record; none when it is damaged or one of its layers is missing.
pub(super) fn load(path: &Path, layers: &Layers) -> Option<(Record, Image)> {
    let record: Record = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    let image = record.image(layers)?;
    let complete = image.roots.iter().flat_map(|root| &root.lowers).all(|lower| lower.is_dir());
    complete.then_some((record, image))
}
