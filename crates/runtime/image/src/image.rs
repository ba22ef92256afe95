//! Images as the runtime sees them.

use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};

/// An image that is present on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Canonical reference.
    pub reference: String,
    /// Digest of the manifest, or a name of the host skeleton's version.
    pub digest: String,
    /// Overlays to mount, the one for `/` first.
    pub roots: Vec<OverlayRoot>,
    /// How the image wants to be started.
    pub config: ImageConfig,
    /// What users should know, such as programs the host lacks.
    pub warnings: Vec<String>,
}

/// One overlay to mount; its lowers are top-most first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayRoot {
    /// Where in the sandbox.
    pub target: PathBuf,
    /// Directories of this machine, with the image's own user and group ids.
    pub lowers: Vec<PathBuf>,
}

/// Defaults for processes of the image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// Environment in the image's order.
    pub env: Vec<(String, String)>,
    /// Program and fixed arguments.
    pub entrypoint: Vec<String>,
    /// Default arguments, or the whole command when there is no entrypoint.
    pub cmd: Vec<String>,
    /// Directory processes start in.
    pub working_dir: Option<String>,
    /// `user[:group]` by name or number; root when absent.
    pub user: Option<String>,
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSummary {
    /// Canonical reference.
    pub reference: String,
    /// Digest of the manifest.
    pub digest: String,
    /// Number of layers.
    pub layers: usize,
    /// Size of the layers as downloaded.
    pub compressed_bytes: u64,
    /// Whether callers without credentials may use it.
    pub public: bool,
}

/// Credentials for one registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    /// Account name.
    pub username: String,
    /// Password or access token.
    pub password: String,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("username", &self.username).field("password", &"…").finish()
    }
}

/// How far a pull is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// What is going on.
    pub stage: Stage,
    /// Layers ready to mount.
    pub layers_done: usize,
    /// Layers of the image; 0 until known.
    pub layers_total: usize,
    /// Bytes downloaded.
    pub bytes_done: u64,
    /// Bytes to download; 0 until known.
    pub bytes_total: u64,
}

/// Steps of a pull.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for a turn, or asking the registry what the image consists of.
    #[default]
    Resolving,
    /// The image is still being made on this machine.
    Building,
    /// Layers are being downloaded and unpacked.
    Fetching,
    /// The image is present.
    Ready,
}
