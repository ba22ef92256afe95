//! The parts of OCI and Docker image metadata that matter for running an image.

use crate::{Error, ImageConfig, digest::Digest};
use serde::Deserialize;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Media types asked of registries.
pub(crate) const MANIFEST_TYPES: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.docker.distribution.manifest.v2+json";
pub(crate) const MANIFEST_BYTES_MAX: u64 = 4 << 20;
pub(crate) const CONFIG_BYTES_MAX: u64 = 8 << 20;

/// A manifest, or an index of manifests.
#[derive(Debug, Deserialize)]
pub(crate) struct Document {
    #[serde(default, rename = "schemaVersion")]
    schema_version: u32,
    #[serde(default)]
    pub(crate) manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    pub(crate) config: Option<Descriptor>,
    #[serde(default)]
    pub(crate) layers: Vec<Descriptor>,
}

/// A pointer to content.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Descriptor {
    digest: String,
    #[serde(default)]
    pub(crate) size: u64,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

/// The configuration blob.
#[derive(Debug, Deserialize)]
struct ConfigFile {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    config: Option<Defaults>,
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Defaults {
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
}

impl Descriptor {
    pub(crate) fn digest(&self, image: &str) -> Result<Digest, Error> {
        Digest::parse(&self.digest).ok_or_else(|| {
            let shown: String = self.digest.chars().take(100).collect();
            Error::malformed(image, format!("its manifest has the unsupported digest {shown:?}"))
        })
    }
}

/// Parses a manifest or an index.
pub(crate) fn document(image: &str, bytes: &[u8]) -> Result<Document, Error> {
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|e| Error::malformed(image, format!("its manifest is not valid: {e}")))?;
    if document.schema_version == 1 {
        let reason =
            "its manifest has the retired schema version 1; push it again with a current tool";
        return Err(Error::malformed(image, reason));
    }
    Ok(document)
}

/// The entry of an index that runs on this machine.
pub(crate) fn choose<'a>(
    image: &str,
    manifests: &'a [Descriptor],
) -> Result<&'a Descriptor, Error> {
    let runs_here = |descriptor: &&Descriptor| {
        descriptor
            .platform
            .as_ref()
            .is_some_and(|p| p.os == "linux" && p.architecture == architecture())
    };
    if let Some(found) = manifests.iter().find(runs_here) {
        return Ok(found);
    }
    // Without platforms there is nothing to choose by; the configuration is checked later.
    if let [only] = manifests
        && only.platform.is_none()
    {
        return Ok(only);
    }
    let mut offered: Vec<String> = manifests
        .iter()
        .filter_map(|descriptor| descriptor.platform.as_ref())
        .filter(|platform| platform.os != "unknown")
        .map(|platform| format!("{}/{}", platform.os, platform.architecture))
        .take(20)
        .collect();
    offered.sort();
    offered.dedup();
    Err(unsupported(image, offered.join(", ")))
}

/// Parses a configuration blob into what processes need and the digests of the layers.
pub(crate) fn config(image: &str, bytes: &[u8]) -> Result<(ImageConfig, Vec<Digest>), Error> {
    let file: ConfigFile = serde_json::from_slice(bytes)
        .map_err(|e| Error::malformed(image, format!("its configuration is not valid: {e}")))?;
    let other_os = !file.os.is_empty() && file.os != "linux";
    let other_architecture = !file.architecture.is_empty() && file.architecture != architecture();
    if other_os || other_architecture {
        return Err(unsupported(image, format!("{}/{}", file.os, file.architecture)));
    }
    let diff_ids = file.rootfs.diff_ids.iter().map(|text| Digest::parse(text)).collect();
    let diff_ids: Option<Vec<Digest>> = diff_ids;
    let diff_ids = diff_ids.ok_or_else(|| {
        Error::malformed(image, "its configuration has an unsupported layer digest")
    })?;
    let defaults = file.config.unwrap_or_default();
    let pair = |line: String| match line.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (line, String::new()),
    };
    let config = ImageConfig {
        env: defaults.env.unwrap_or_default().into_iter().map(pair).collect(),
        entrypoint: defaults.entrypoint.unwrap_or_default(),
        cmd: defaults.cmd.unwrap_or_default(),
        working_dir: defaults.working_dir.filter(|path| !path.is_empty()),
        user: defaults.user.filter(|user| !user.is_empty()),
    };
    Ok((config, diff_ids))
}

fn unsupported(image: &str, offered: String) -> Error {
    let offered = if offered.is_empty() { "none".to_owned() } else { offered };
    Error::Platform {
        image: image.to_owned(),
        wanted: format!("linux/{}", architecture()),
        offered,
    }
}

/// This machine's architecture in the words of image tools.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}
