//! Coming up: checking the machine, finding the spawner, taking hold of what runs.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use atoll_core::Isolation;
use atoll_image::ImageStore;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, mpsc};

use super::{EVENTS_MAX, Local, LocalRuntime};
use crate::cgroup::{self, Cgroups};
use crate::client::Spawner;
use crate::config::{Layout, LocalConfig};
use crate::dial::Dialer;
use crate::net::Uplink;
use crate::protocol::SpawnerConfig;
use crate::sys::process;
use crate::trash::Trash;
use crate::{doctor, snapshots, volumes};

/// Why the local runtime can't start, in words that say what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The machine lacks something.
    #[error("this machine can't run sandboxes:\n{0}")]
    Machine(String),
    /// A program is missing.
    #[error("{what} is not at {path}: run `cargo xtask build`, which makes it there")]
    Program {
        /// Which.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The launcher that the operator chose can't be used.
    #[error("isolation = {program:?} can't be used: {why}")]
    Isolation {
        /// Which.
        program: String,
        /// Why not, and what to do.
        why: &'static str,
    },
    /// Something could not be done.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The image store can't be opened.
    #[error("opening the image store: {0}")]
    Images(#[from] atoll_image::Error),
}

impl LocalRuntime {
    /// Starts the runtime on this machine and takes hold of the sandboxes that run already.
    pub async fn start(mut config: LocalConfig) -> Result<Self, StartError> {
        let missing = doctor::obstacles();
        if !missing.is_empty() {
            return Err(StartError::Machine(missing.join("\n")));
        }
        for (what, path) in [("the agent", &config.agent), ("the spawner", &config.program)] {
            if !path.is_file() {
                return Err(StartError::Program { what, path: path.clone() });
            }
        }
        if let Isolation::Oci(program) = &config.isolation
            && let Some(why) = doctor::why_not(program)
        {
            return Err(StartError::Isolation { program: program.clone(), why });
        }
        if let Isolation::Oci(program) = &config.isolation
            && doctor::is_gvisor(program)
            && let Some(complaint) = doctor::gvisor_complaint(program)
        {
            tracing::warn!("{program}: {complaint}");
        }
        if config.network.uplink != Uplink::None && doctor::find_program("nft").is_none() {
            // Without a firewall nothing keeps a sandbox from the host and its neighbours.
            tracing::warn!("nft is not installed: sandboxes reach nothing but themselves");
            config.network.uplink = Uplink::None;
        }
        make_folders(&config.data_dir).map_err(doing("making the data folder"))?;
        config.data_dir =
            config.data_dir.canonicalize().map_err(doing("resolving the data folder"))?;
        let layout = Layout::new(&config.data_dir);
        Trash::of(&layout).empty();
        snapshots::remove_drafts(&layout);
        process::raise_open_files().map_err(doing("raising the limit of open files"))?;
        let label = label(&config.data_dir);
        let groups = cgroup::Layout::detect().map_err(doing("looking for control groups"))?;
        let cgroups = Cgroups::prepare(groups, format!("atoll-{label}"))
            .map_err(doing("making control groups"))?;
        config.images.root = layout.images();
        let images = ImageStore::open(config.images.clone())?;
        let spawner = Spawner::new(
            layout.clone(),
            config.program.clone(),
            SpawnerConfig {
                data_dir: config.data_dir.clone(),
                label,
                network: config.network.clone(),
                ready_networks: config.ready_networks,
            },
        );
        spawner.attach().await.map_err(doing("starting the spawner"))?;
        let volumes = volumes::open(&layout).map_err(doing("looking for volumes"))?;
        let dialer = Dialer::start().map_err(doing("starting the dialer"))?;
        let (events, inbox) = mpsc::channel(EVENTS_MAX);
        let local = Arc::new(Local {
            config,
            layout,
            cgroups,
            images,
            spawner,
            volumes,
            reclaiming: Arc::new(Semaphore::new(1)),
            dialer: Arc::new(dialer),
            live: Mutex::new(HashMap::new()),
            locks: Mutex::new(HashMap::new()),
            events,
            inbox: Mutex::new(Some(inbox)),
        });
        adopt_all(&local).map_err(doing("taking hold of running sandboxes"))?;
        Ok(Self(local))
    }

    /// Lets go of the machine; sandboxes that run go on running.
    pub fn close(&self) {
        if super::locked(&self.0.live).is_empty() {
            self.0.cgroups.remove_parent();
        }
    }

    /// Makes an image present before the first sandbox asks for it.
    pub async fn prefetch(&self, reference: &str) -> Result<Vec<String>, atoll_image::Error> {
        let image = self.0.images.ensure(reference, None, &|_| {}).await?;
        Ok(image.warnings.clone())
    }
}

fn doing(what: &str) -> impl FnOnce(io::Error) -> StartError {
    let doing = what.to_owned();
    move |source| StartError::Io { doing, source }
}

/// A short word that is the same for the same folder, on every start.
fn label(data_dir: &Path) -> String {
    let digest = Sha256::digest(data_dir.as_os_str().as_encoded_bytes());
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn make_folders(data_dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir)?;
    make_private(data_dir)?;
    for folder in ["sandboxes", "snapshots", "volumes", "trash", "oci"] {
        std::fs::create_dir_all(data_dir.join(folder))?;
    }
    Ok(())
}

/// Lets nobody else into a folder, also one that was there before: images and sandboxes hold
/// programs with root's rights.
fn make_private(folder: &Path) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    let opened = std::fs::File::open(folder)?;
    let found = opened.metadata()?;
    let refused = |problem: &str| {
        let message = format!("{} {problem}: name a folder of its own", folder.display());
        io::Error::new(io::ErrorKind::PermissionDenied, message)
    };
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("belongs to another user"));
    }
    // Closing /tmp would break the machine.
    if found.mode() & STICKY != 0 {
        return Err(refused("is shared by all users"));
    }
    opened.set_permissions(std::fs::Permissions::from_mode(0o700))
}

/// Takes hold of all that run. One that can't be understood must not keep the others from being
/// served; without a hold it counts as ended, and its end is cleaned up like any other.
fn adopt_all(local: &Arc<Local>) -> io::Result<()> {
    for entry in std::fs::read_dir(local.layout.sandboxes())? {
        let Ok(id) = entry?.file_name().into_string() else { continue };
        if let Err(error) = local.adopt(&id) {
            tracing::error!(%error, id, "can't take hold of a sandbox");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
