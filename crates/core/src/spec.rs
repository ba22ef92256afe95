//! What a user asked for: already checked, free of any wire format.

use std::collections::BTreeMap;
use std::fmt;

use crate::id::SnapshotId;

/// Everything that makes one sandbox what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSpec {
    /// Where its files come from.
    pub source: Source,
    /// Program and arguments run beside the agent; its end is the sandbox's end. Empty: the
    /// image's own.
    pub entrypoint: Vec<String>,
    /// Variables of the entrypoint and of every command.
    pub env: BTreeMap<String, String>,
    /// Upper bounds on what it may use.
    pub resources: Resources,
    /// The user's labels, for filters.
    pub metadata: BTreeMap<String, String>,
    /// Labels that only one door understands and wants back unchanged.
    pub extensions: BTreeMap<String, String>,
    /// Echoed when it was asked for.
    pub platform: Option<Platform>,
    /// How strongly it is walled in.
    pub isolation: Isolation,
    /// Extra folders.
    pub mounts: Vec<Mount>,
    /// What it may reach.
    pub network: Network,
}

/// Where a sandbox's files come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An image by name.
    Image(ImageSource),
    /// The files of an earlier sandbox.
    Snapshot(SnapshotId),
}

/// An image by name, with what its registry asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSource {
    /// Registry reference, or the name of a built-in or configured image.
    pub reference: String,
    /// Credentials of a private registry; kept only until the image is here.
    pub auth: Option<RegistryAuth>,
}

/// User and password of a registry. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryAuth {
    /// User name.
    pub username: String,
    /// Password or token.
    pub password: String,
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryAuth").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Upper bounds; `None` leaves the machine's configured default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Thousandths of a core.
    pub cpu_millis: Option<u64>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
}

/// Operating system and processor a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Such as `linux`.
    pub os: String,
    /// Such as `amd64`.
    pub arch: String,
}

/// Which launcher walls the sandbox in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Whatever the installation uses by default.
    #[default]
    Default,
    /// Our own launcher.
    Native,
    /// An OCI runtime program by name, such as `runc`.
    Oci(String),
}

/// A folder from outside, visible at `target` inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Unique name within the sandbox.
    pub name: String,
    /// Where it comes from.
    pub source: MountSource,
    /// Absolute path inside.
    pub target: String,
    /// Folder within the source, relative, without `..`.
    pub sub_path: Option<String>,
    /// Refuse writes.
    pub read_only: bool,
}

/// Where a mounted folder comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSource {
    /// A folder of the host, allowed by the operator.
    Host(String),
    /// A named volume that outlives sandboxes.
    Volume {
        /// Name, unique for its tenant.
        name: String,
        /// Make it when it isn't there.
        create: bool,
        /// Remove it together with the sandbox.
        delete_with_sandbox: bool,
    },
}

/// What a sandbox may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// The internet, but neither the host, private ranges nor other sandboxes.
    #[default]
    Internet,
    /// Nothing but itself.
    Isolated,
}
