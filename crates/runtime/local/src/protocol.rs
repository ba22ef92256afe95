//! What the server and the spawner say to each other: one JSON line each way per connection.
//!
//! The two may be of different versions, because a spawner lives as long as its sandboxes. So
//! members are only ever added, with defaults, and [`GENERATION`] grows when that isn't enough.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::net::NetworkConfig;
use crate::{doctor, random};

/// Generation of these messages.
pub(crate) const GENERATION: u32 = 1;

/// What a spawner is started with, on its command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SpawnerConfig {
    /// Folder of the installation's data.
    pub(crate) data_dir: PathBuf,
    /// Short word that is unique to this installation, for names that are global to the host.
    pub(crate) label: String,
    pub(crate) network: NetworkConfig,
    /// Namespaces kept ready.
    pub(crate) ready_networks: usize,
}

/// The first and only line of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Request {
    /// "I am here": the spawner stays as long as this connection does.
    Attach,
    /// Start a sandbox.
    Launch(Box<Launch>),
    /// End what there is of a sandbox, and answer when nothing will be written about it any more.
    Settle { id: String },
}

/// Everything needed to start one sandbox whose folders and groups exist already.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) id: String,
    /// The sandbox's own folder.
    pub(crate) dir: PathBuf,
    pub(crate) launcher: Launcher,
    /// How the agent is reached where its socket can't be handed over.
    #[serde(default)]
    pub(crate) door: Option<Door>,
    pub(crate) roots: Vec<Root>,
    pub(crate) mounts: Vec<Bind>,
    /// Files written into the sandbox's tree, by path inside.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) hostname: String,
    /// The agent program.
    pub(crate) agent: PathBuf,
    /// The agent's configuration, JSON as it reads it.
    pub(crate) agent_config: String,
    pub(crate) cgroups: CgroupDirs,
    /// Connect it to the router.
    pub(crate) network: bool,
    /// Bytes of shared memory and of the log ring.
    pub(crate) shm_bytes: u64,
    pub(crate) log_bytes: u64,
}

/// Who makes the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Launcher {
    Native,
    /// An OCI runtime: its program, and limits it sets itself.
    Oci {
        program: String,
        memory_bytes: Option<u64>,
        cpu_millis: Option<u64>,
        pids: Option<u64>,
    },
}

impl Launcher {
    /// gVisor: it hands neither sockets nor our user namespaces to a sandbox, so the agent is
    /// reached by port and files keep the image's ids. Its own kernel is the wall.
    pub(crate) fn is_gvisor(&self) -> bool {
        match self {
            Self::Native => false,
            Self::Oci { program, .. } => doctor::is_gvisor(program),
        }
    }
}

/// A port on the sandbox's own loopback. Everybody inside can connect to it, so whoever does
/// must say the secret first, before a byte of HTTP.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Door {
    pub(crate) port: u16,
    pub(crate) secret: String,
}

impl Door {
    /// Where the agents of gVisor sandboxes listen; the port that execd has in its own images.
    const PORT: u16 = 44772;

    /// A door with a secret nobody knows yet.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { port: Self::PORT, secret: random::hex(16)? })
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("port", &self.port).finish_non_exhaustive()
    }
}

/// One overlay: `target` inside, read-only layers (top-most first), and the writable folder that
/// has `upper` and `work` in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Root {
    pub(crate) target: PathBuf,
    pub(crate) lowers: Vec<PathBuf>,
    pub(crate) writable: PathBuf,
}

/// A folder from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bind {
    /// A folder that only the operator or this server names.
    pub(crate) root: PathBuf,
    /// What is meant below it. Tenants may write there, so it is walked without following links.
    pub(crate) below: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) read_only: bool,
}

/// The groups a sandbox is born into.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CgroupDirs {
    pub(crate) unified: Option<PathBuf>,
    /// By controller.
    pub(crate) v1: BTreeMap<String, PathBuf>,
    /// The v2 tree has the limits.
    pub(crate) v2_limits: bool,
    /// Below each root, for OCI runtimes.
    pub(crate) oci_path: String,
}

/// The spawner's only line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    Attached { generation: u32, pid: i32 },
    Launched(Launched),
    Settled,
    Failed { message: String },
}

/// What is known of a started sandbox; also kept in its folder as `launched.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Launched {
    pub(crate) pid: i32,
    /// The log ring is descriptor `log_fd` of this process.
    pub(crate) spawner: i32,
    pub(crate) log_fd: i32,
    /// Which tells whether that descriptor still is the ring.
    #[serde(default)]
    pub(crate) log_inode: u64,
    /// How the agent is reached, if not by the socket in the folder.
    #[serde(default)]
    pub(crate) door: Option<Door>,
    /// Number of its cable and first of its ids, so that neither is given out twice.
    pub(crate) cable: Option<u32>,
    pub(crate) first_id: u32,
    pub(crate) launcher: Launcher,
}

impl Launched {
    /// Whether its process still is the sandbox in `dir`: a number may come to mean another one,
    /// but not one that is in the sandbox's control group.
    pub(crate) fn lives(&self, dir: &Path) -> bool {
        let id = dir.file_name().unwrap_or_default().to_string_lossy();
        let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", self.pid));
        groups.is_ok_and(|text| text.lines().any(|line| line.ends_with(&format!("/{id}"))))
    }
}

/// How a sandbox ended; kept in its folder as `exit.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) code: i32,
}

/// Names of the files in a sandbox's folder.
pub(crate) mod files {
    pub(crate) const SOCKET: &str = "agent.sock";
    pub(crate) const LAUNCHED: &str = "launched.json";
    pub(crate) const EXIT: &str = "exit.json";
    pub(crate) const LOG: &str = "log";
    /// Its agent has answered once.
    pub(crate) const ANSWERED: &str = "answered";
    /// It has ended, or is about to, and starts from its files when it is resumed.
    pub(crate) const RESTING: &str = "resting.json";
    /// What it has for the machine's `boot_id`.
    pub(crate) const BOOT_ID: &str = "boot_id";
    /// Where layers and the root are mounted, in the sandbox's own mount namespace only.
    pub(crate) const LAYERS: &str = "layers";
    pub(crate) const ROOT: &str = "root";
}
