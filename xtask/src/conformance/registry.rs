//! A private registry on loopback with one image in it, pushed over its HTTP API.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use atoll_e2e::http::Client;
use atoll_e2e::image::{Image, MANIFEST, digest};
use serde_json::json;

use crate::command::program;

/// The one user; the three constants after it are the same credential in other clothes.
pub(super) const USER: &str = "atoll";
pub(super) const PASSWORD: &str = "open-sesame";
const BASIC: &str = "Basic YXRvbGw6b3Blbi1zZXNhbWU=";
const HTPASSWD: &str = "atoll:$2b$05$abcdefghijklmnopqrstuutXu9KzOt.1yBoZUeFWoT/914/JfszCO\n";

const REPOSITORY: &str = "private/busybox";
const TAG: &str = "1";
const START_TRIES: usize = 5;
const PATIENCE: Duration = Duration::from_secs(20);

/// A running registry; stopped when dropped.
pub(super) struct Registry {
    child: Child,
    address: SocketAddr,
}

impl Registry {
    /// Starts it in `folder` and pushes the image.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).context("can't create the registry's folder")?;
        fs::write(folder.join("htpasswd"), HTPASSWD).context("can't write htpasswd")?;
        // The program can't report a port it chose itself, so a free one may be gone again.
        for _ in 0..START_TRIES {
            if let Some(registry) = Self::try_start(folder)? {
                registry.push(folder).context("can't push the test image")?;
                return Ok(registry);
            }
        }
        bail!("docker-registry did not start on {START_TRIES} different ports")
    }

    /// The image's reference.
    pub(super) fn image(&self) -> String {
        format!("{}/{REPOSITORY}:{TAG}", self.address)
    }

    fn try_start(folder: &Path) -> Result<Option<Self>> {
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let config = json!({
            "version": "0.1",
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": folder.join("storage")}},
            "http": {"addr": address.to_string()},
            "auth": {"htpasswd": {"realm": "atoll", "path": folder.join("htpasswd")}},
        });
        // JSON is YAML.
        let path = folder.join("config.yml");
        fs::write(&path, config.to_string()).context("can't write the registry's configuration")?;
        let mut serve = program("docker-registry", ["serve"]);
        let log =
            fs::File::create(folder.join("log")).context("can't create the registry's log")?;
        let child = serve.arg(&path).stdout(Stdio::null()).stderr(log).spawn();
        let mut registry = Self { child: child.context("can't start docker-registry")?, address };
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if registry.child.try_wait()?.is_some() {
                return Ok(None);
            }
            if Client::new(address, &[]).send("GET", "/v2/", "", &[]).is_ok_and(|a| a.status == 401)
            {
                return Ok(Some(registry));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("docker-registry did not answer within {PATIENCE:?}")
    }

    fn push(&self, folder: &Path) -> Result<()> {
        let image = Image::busybox(&folder.join("rootfs"))?;
        let mut client = Client::new(self.address, &[("Authorization", BASIC)]);
        for blob in &image.blobs {
            upload(&mut client, blob)?;
        }
        let path = format!("/v2/{REPOSITORY}/manifests/{TAG}");
        let answer = client.send("PUT", &path, MANIFEST, &image.manifest)?;
        ensure!(answer.status == 201, "manifest: {}", answer.explain());
        Ok(())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).ok();
    }
}

fn upload(client: &mut Client, blob: &[u8]) -> Result<()> {
    let path = format!("/v2/{REPOSITORY}/blobs/uploads/");
    let begun = client.send("POST", &path, "", &[])?;
    ensure!(begun.status == 202, "upload: {}", begun.explain());
    let place = begun.header("location").context("the registry names no place for the upload")?;
    let place = place.split_once("/v2/").map(|(_, rest)| format!("/v2/{rest}"));
    let place = place.context("the registry names a strange place")?;
    let joint = if place.contains('?') { '&' } else { '?' };
    let path = format!("{place}{joint}digest={}", digest(blob));
    let done = client.send("PUT", &path, "application/octet-stream", blob)?;
    ensure!(done.status == 201, "blob: {}", done.explain());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{BASIC, Client, REPOSITORY, Registry, TAG};

    #[test]
    fn the_image_is_there_for_who_knows_the_password() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::start(&folder.path().join("registry")).unwrap();
        let path = format!("/v2/{REPOSITORY}/manifests/{TAG}");
        let mut stranger = Client::new(registry.address, &[]);
        assert_eq!(stranger.send("GET", &path, "", &[]).unwrap().status, 401);
        let accept = ("Accept", super::MANIFEST);
        let mut friend = Client::new(registry.address, &[("Authorization", BASIC), accept]);
        let manifest = friend.json("GET", &path, None).unwrap();
        assert_eq!(manifest["layers"].as_array().map(Vec::len), Some(1));
    }
}
