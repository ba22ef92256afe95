//! A small OCI image, made here: one layer of busybox.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::command::{program, run};
use crate::rootfs;

/// Media type of an image's manifest.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// An image in memory.
pub(crate) struct Image {
    /// Layer and configuration.
    pub blobs: [Vec<u8>; 2],
    /// What names them.
    pub manifest: Vec<u8>,
}

impl Image {
    /// Busybox; `root` is filled with its files.
    pub(crate) fn busybox(root: &Path) -> Result<Self> {
        rootfs::busybox(root)?;
        let archive = root.with_extension("tar");
        let mut tar = program("tar", ["--owner=0", "--group=0", "--numeric-owner", "--create"]);
        run(tar.arg("--file").arg(&archive).arg("--directory").arg(root).arg("."))?;
        let layer = fs::read(&archive).context("can't read the layer")?;
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest(&config), "size": config.len()},
            "layers": [{"mediaType": LAYER, "digest": digest(&layer), "size": layer.len()}],
        });
        Ok(Self { blobs: [layer, config], manifest: manifest.to_string().into_bytes() })
    }

    /// Writes it as an OCI layout.
    pub(crate) fn write_layout(&self, folder: &Path) -> Result<()> {
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs).context("can't create the layout")?;
        for blob in self.blobs.iter().chain([&self.manifest]) {
            let name = digest(blob).replace("sha256:", "");
            fs::write(blobs.join(name), blob).context("can't write a blob")?;
        }
        let index = json!({ "schemaVersion": 2, "manifests": [
            {"mediaType": MANIFEST, "digest": digest(&self.manifest), "size": self.manifest.len()}
        ]});
        fs::write(folder.join("index.json"), index.to_string()).context("can't write the index")?;
        fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)
            .context("can't write the layout")
    }
}

/// How images name their parts.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
