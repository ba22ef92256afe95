//! What the operator may set.

use crate::AdditionState;
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Where images are kept and where they may come from.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Directory of the store; made when missing.
    pub root: PathBuf,
    /// Image name to `oci:/dir[:tag]`, `archive:/file.tar[:tag]`, `host` or a registry reference.
    pub aliases: BTreeMap<String, String>,
    /// Images laid over the host's, by name.
    pub additions: BTreeMap<String, AdditionState>,
    /// Registry host to mirrors tried before it, as `host[:port]` or `http(s)://host[:port][/path]`.
    /// Mirrors serve pulls without credentials only.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Registries spoken to over plain HTTP; loopback addresses always are.
    pub insecure_registries: Vec<String>,
    /// Bounds on everything an image or a registry could make large or slow.
    pub limits: Limits,
}

/// Bounds on one pull.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Layers in one image.
    pub layers_max: usize,
    /// Bytes downloaded for one image.
    pub compressed_bytes_max: u64,
    /// Bytes of tar stream unpacked for one image.
    pub unpacked_bytes_max: u64,
    /// Archive entries unpacked for one image.
    pub entries_max: u64,
    /// Pulls running at once; more wait their turn.
    pub concurrent_pulls_max: usize,
    /// Time to open a connection.
    pub connect_timeout: Duration,
    /// Longest silence of a registry that is sending.
    pub stall_timeout: Duration,
    /// Longest duration of one pull.
    pub pull_timeout: Duration,
    /// Tries of one request before a transient failure is reported.
    pub attempts_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            layers_max: 128,
            compressed_bytes_max: 16 << 30,
            unpacked_bytes_max: 32 << 30,
            entries_max: 2_000_000,
            concurrent_pulls_max: 16,
            connect_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            pull_timeout: Duration::from_secs(30 * 60),
            attempts_max: 3,
        }
    }
}
