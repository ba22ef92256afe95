//! What an operator can set about the local runtime.

use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_core::{Isolation, Resources};

use crate::net::NetworkConfig;

/// Settings of the local runtime.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Folder of everything; made with access for root only.
    pub data_dir: PathBuf,
    /// The `atoll` program, which is also the spawner.
    pub program: PathBuf,
    /// The static `atoll-agent` program.
    pub agent: PathBuf,
    /// How sandboxes are connected.
    pub network: NetworkConfig,
    /// Where images come from; its `root` is set to a folder below `data_dir`.
    pub images: atoll_image::Config,
    /// The launcher of sandboxes that name none.
    pub isolation: Isolation,
    /// OCI runtime programs that sandboxes may name.
    pub oci_programs: Vec<String>,
    /// Host folders that sandboxes may mount, with all below them.
    pub allowed_host_paths: Vec<PathBuf>,
    /// Limits of sandboxes that name none.
    pub default_resources: Resources,
    /// Network namespaces kept ready for the next sandboxes.
    pub ready_networks: usize,
    /// Bytes of the entrypoint's output that are kept.
    pub log_bytes: u64,
    /// Bytes of shared memory in `/dev/shm`.
    pub shm_bytes: u64,
    /// Free space below which no new sandbox is made; at most a fiftieth of the disk.
    pub disk_reserve_bytes: u64,
    /// How long an agent may take to answer first.
    pub start_timeout: Duration,
}

impl LocalConfig {
    /// Defaults for data in `data_dir`, with the programs beside each other.
    pub fn new(data_dir: &Path, program: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            program: program.to_owned(),
            agent: program.with_file_name("atoll-agent"),
            network: NetworkConfig::default(),
            images: atoll_image::Config::default(),
            isolation: Isolation::Native,
            oci_programs: ["runc", "crun", "runsc"].map(str::to_owned).to_vec(),
            allowed_host_paths: Vec::new(),
            default_resources: Resources { cpu_millis: None, memory_bytes: None, pids: Some(4096) },
            ready_networks: 16,
            log_bytes: 256 << 10,
            shm_bytes: 64 << 20,
            disk_reserve_bytes: 512 << 20,
            start_timeout: Duration::from_secs(30),
        }
    }
}

/// Where things are below the data folder.
#[derive(Clone, Debug)]
pub(crate) struct Layout(PathBuf);

impl Layout {
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self(data_dir.to_owned())
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.0.join("sandboxes")
    }

    pub(crate) fn sandbox(&self, id: &str) -> PathBuf {
        self.sandboxes().join(id)
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.0.join("snapshots")
    }

    pub(crate) fn snapshot(&self, id: &str) -> PathBuf {
        self.snapshots().join(id)
    }

    pub(crate) fn volumes(&self) -> PathBuf {
        self.0.join("volumes")
    }

    pub(crate) fn volume(&self, tenant: &str, name: &str) -> PathBuf {
        self.volumes().join(tenant).join(name)
    }

    /// Ids and tokens of volumes.
    pub(crate) fn volume_records(&self) -> PathBuf {
        self.0.join("volume-records")
    }

    /// Files on their way into volumes, on the same disk.
    pub(crate) fn volume_drafts(&self) -> PathBuf {
        self.0.join("volume-drafts")
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.0.join("images")
    }

    pub(crate) fn trash(&self) -> PathBuf {
        self.0.join("trash")
    }

    pub(crate) fn oci(&self) -> PathBuf {
        self.0.join("oci")
    }

    pub(crate) fn spawner_socket(&self) -> PathBuf {
        self.0.join("spawner.sock")
    }

    pub(crate) fn spawner_log(&self) -> PathBuf {
        self.0.join("spawner.log")
    }
}
