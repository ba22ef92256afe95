//! Images made on the spot, and stores to pull them into.

use atoll_image::{Auth, Config, Error, Image, ImageStore, Limits};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{io::Write, path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;

pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A layer with the given files; names ending in `/` are directories.
pub(crate) fn layer(files: &[(&str, &str)]) -> Layer {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        if path.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        builder.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    let tar = builder.into_inner().unwrap();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&tar).unwrap();
    Layer { blob: encoder.finish().unwrap(), diff_id: digest(&tar), tar }
}

#[derive(Clone)]
pub(crate) struct Layer {
    pub(crate) blob: Vec<u8>,
    pub(crate) tar: Vec<u8>,
    pub(crate) diff_id: String,
}

/// An image as a registry holds it.
pub(crate) struct TestImage {
    pub(crate) layers: Vec<Layer>,
    pub(crate) config: Vec<u8>,
    pub(crate) manifest: Vec<u8>,
}

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

impl TestImage {
    pub(crate) fn new(layers: &[Layer]) -> Self {
        Self::for_architecture(layers, architecture())
    }

    pub(crate) fn for_architecture(layers: &[Layer], architecture: &str) -> Self {
        let diff_ids: Vec<&str> = layers.iter().map(|layer| &*layer.diff_id).collect();
        let config = json!({
            "os": "linux", "architecture": architecture,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
            "config": {"Env": ["COLOUR=blue"], "Cmd": ["sh"], "WorkingDir": "/srv", "User": "1000"},
        });
        let config = config.to_string().into_bytes();
        let described: Vec<Value> = layers
            .iter()
            .map(|layer| {
                json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                    "digest": digest(&layer.blob), "size": layer.blob.len()})
            })
            .collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "layers": described,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest(&config), "size": config.len()},
        });
        Self { layers: layers.to_vec(), config, manifest: manifest.to_string().into_bytes() }
    }

    pub(crate) fn blobs(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.layers.iter().map(|layer| &layer.blob).chain([&self.config])
    }

    /// An index that offers this image for this machine.
    pub(crate) fn index(&self) -> Vec<u8> {
        let entry = |digest: String, architecture: &str| {
            json!({"mediaType": MANIFEST, "digest": digest, "size": self.manifest.len(),
                "platform": {"os": "linux", "architecture": architecture}})
        };
        let own = entry(digest(&self.manifest), architecture());
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [own]}).to_string().into_bytes()
    }
}

pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A store in a directory of its own, impatient enough for tests.
pub(crate) struct Shelf {
    pub(crate) store: ImageStore,
    pub(crate) config: Config,
    _directory: TempDir,
}

impl Shelf {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests need root: run them as root");
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits { stall_timeout: Duration::from_secs(5), ..Limits::default() };
        let mut config =
            Config { root: directory.path().join("store"), limits, ..Config::default() };
        change(&mut config);
        Self { store: ImageStore::open(config.clone()).unwrap(), config, _directory: directory }
    }

    pub(crate) async fn pull(&self, reference: &str) -> Result<Arc<Image>, Error> {
        self.store.ensure(reference, None, &|_| {}).await
    }

    pub(crate) async fn pull_as(
        &self,
        reference: &str,
        username: &str,
        password: &str,
    ) -> Result<Arc<Image>, Error> {
        let auth = Auth { username: username.into(), password: password.into() };
        self.store.ensure(reference, Some(&auth), &|_| {}).await
    }

    /// Fails unless the store holds nothing at all, finished or not.
    pub(crate) fn assert_empty(&self) {
        assert_eq!(self.store.list(), []);
        for name in ["layers", "tmp", "images"] {
            assert_eq!(names(&self.config.root.join(name)), Vec::<String>::new(), "left in {name}");
        }
    }
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
