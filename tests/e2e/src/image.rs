//! A small OCI image, made here: one layer of busybox.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

/// Media type of an image's manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// An image in memory.
pub struct Image {
    /// Layer and configuration.
    pub blobs: [Vec<u8>; 2],
    /// What names them.
    pub manifest: Vec<u8>,
}

impl Image {
    /// Busybox beside whatever `root` has already; `root` is filled with its files.
    ///
    /// # Errors
    /// When busybox or tar is missing, or files can't be written.
    pub fn busybox(root: &Path) -> Result<Self> {
        fill(root)?;
        let archive = root.with_extension("tar");
        let mut tar = Command::new("tar");
        tar.args(["--owner=0", "--group=0", "--numeric-owner", "--create", "--file"]);
        output(tar.arg(&archive).arg("--directory").arg(root).arg("."))?;
        let layer = fs::read(&archive).context("can't read the layer")?;
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": ["tail", "-f", "/dev/null"]},
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
    ///
    /// # Errors
    /// When files can't be written.
    pub fn write_layout(&self, folder: &Path) -> Result<()> {
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
pub fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// One static program with its many names, users, and the usual empty folders.
fn fill(root: &Path) -> Result<()> {
    let busybox = find("busybox").context("busybox is missing; install busybox-static")?;
    for folder in ["bin", "etc", "root", "tmp", "proc", "sys", "dev", "run"] {
        let path = root.join(folder);
        fs::create_dir_all(&path).with_context(|| format!("can't create {}", path.display()))?;
    }
    fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777))?;
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\n")?;
    fs::copy(&busybox, root.join("bin/busybox")).context("can't copy busybox")?;
    for name in output(Command::new(&busybox).arg("--list"))?.lines() {
        if name != "busybox" && !name.contains('/') {
            symlink("busybox", root.join("bin").join(name))
                .with_context(|| format!("can't link {name}"))?;
        }
    }
    Ok(())
}

/// The full path of a program on PATH or in the system's own folders.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|p| p.is_file())
}

fn output(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("can't start {command:?}"))?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(done.status.success(), "{command:?} ended with {}: {}", done.status, said.trim());
    String::from_utf8(done.stdout).with_context(|| format!("{command:?} wrote no text"))
}
