//! What the door is given.

use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Control, Keys, Pools, Volumes};
use atoll_core::Timestamp;
use atoll_proxy::Proxy;
use atoll_template::TemplateService;
use atoll_vault::Secrets;

use super::directory::Directory;
use super::turns::Turns;

/// The operator's choices that this door enforces.
#[derive(Clone, Debug)]
pub struct DoorConfig {
    /// Domain, and port if any, below which `<port>-<sandbox>` leads to a sandbox; clients build
    /// host names with it. `None`: the host that a client used for its request.
    pub domain: Option<String>,
    /// Longest lifetime a client may ask for.
    pub timeout_max: Duration,
    /// Sandboxes without a lifetime are accepted.
    pub allow_no_expiry: bool,
    /// How long a creation waits for the sandbox to run; pauses, resumptions and snapshots wait
    /// as long.
    pub create_wait: Duration,
    /// Sandboxes reach the internet unless they ask not to; else they reach nothing outside.
    pub internet: bool,
    /// Thousandths of a core that a sandbox gets which doesn't say.
    pub default_cpu_millis: u64,
    /// Bytes of memory that a sandbox gets which doesn't say.
    pub default_memory_bytes: u64,
    /// Bytes of disk shown for every sandbox.
    pub disk_bytes: u64,
}

impl Default for DoorConfig {
    fn default() -> Self {
        Self {
            domain: None,
            timeout_max: Duration::from_secs(86_400),
            allow_no_expiry: false,
            create_wait: Duration::from_secs(60),
            internet: true,
            default_cpu_millis: 2000,
            default_memory_bytes: 1 << 30,
            disk_bytes: 10 << 30,
        }
    }
}

/// Everything a handler needs. Cheap to clone.
#[derive(Clone)]
pub struct DoorState {
    /// Where sandboxes are made.
    pub control: Arc<dyn Control>,
    /// What names of templates mean.
    pub templates: Arc<TemplateService>,
    /// Where volumes are kept.
    pub volumes: Arc<dyn Volumes>,
    /// Where secrets are kept.
    pub secrets: Arc<Secrets>,
    /// Which warm pools there are.
    pub pools: Arc<dyn Pools>,
    /// Who may ask.
    pub keys: Arc<Keys>,
    /// Sandboxes by id alone.
    pub directory: Directory,
    /// The way into sandboxes.
    pub proxy: Proxy,
    /// The operator's choices.
    pub config: Arc<DoorConfig>,
    /// The time; the same clock that ends sandboxes.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// What requests must not do at the same time.
    pub turns: Turns,
}
