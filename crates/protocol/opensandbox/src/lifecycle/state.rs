//! What the door is given.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Control, Keys};
use atoll_core::Timestamp;
use atoll_proxy::Proxy;

use super::signed::RouteSigner;

/// The operator's choices that this door enforces.
#[derive(Clone, Debug)]
pub struct DoorConfig {
    /// Host, and port if any, put into endpoints instead of the request's own `Host`.
    pub public_host: Option<String>,
    /// Shortest lifetime a client may ask for.
    pub timeout_min: Duration,
    /// Longest lifetime a client may ask for at creation.
    pub timeout_max: Duration,
    /// Sandboxes without a lifetime are accepted.
    pub allow_no_expiry: bool,
    /// How long a creation waits for the sandbox to run before it answers `Pending`; pauses and
    /// resumptions wait as long.
    pub create_wait: Duration,
    /// Folders of the host below which volumes may lie; empty: none.
    pub allowed_host_paths: Vec<PathBuf>,
    /// Sandboxes reach the internet; else they reach nothing outside.
    pub internet: bool,
}

impl Default for DoorConfig {
    fn default() -> Self {
        Self {
            public_host: None,
            timeout_min: Duration::from_secs(60),
            timeout_max: Duration::from_secs(86_400),
            allow_no_expiry: false,
            create_wait: Duration::from_secs(10),
            allowed_host_paths: Vec::new(),
            internet: true,
        }
    }
}

/// Everything a handler needs. Cheap to clone.
#[derive(Clone)]
pub struct DoorState {
    /// Where sandboxes are made.
    pub control: Arc<dyn Control>,
    /// Who may ask.
    pub keys: Arc<Keys>,
    /// The way into sandboxes.
    pub proxy: Proxy,
    /// Makes and checks signed routes.
    pub signer: Arc<RouteSigner>,
    /// The operator's choices.
    pub config: Arc<DoorConfig>,
    /// The time; the same clock that ends sandboxes.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}
