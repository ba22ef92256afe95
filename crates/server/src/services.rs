//! What stands beside the lifecycle: templates, secrets, volumes, and the door that shows them.

use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Control, Documents, Keys, Pools, Templates, Volumes};
use atoll_core::{TenantId, Timestamp};
use atoll_e2b::lifecycle::{Directory, DoorConfig, DoorState, Turns};
use atoll_proxy::Proxy;
use atoll_template::{BuiltIn, TemplateConfig, TemplateService};
use atoll_vault::Secrets;

use crate::config::{Config, Uplink};
use crate::error::ServeError;
use crate::interpreter::Interpreter;

/// The folder of the data folder that holds what clients send for template builds.
const UPLOADS: &str = "uploads";
/// How long a creation through this door waits; its clients wait a minute themselves.
const CREATE_WAIT: Duration = Duration::from_secs(55);

/// What services are made of.
pub(crate) struct Ground {
    pub(crate) control: Arc<dyn Control>,
    pub(crate) pools: Arc<dyn Pools>,
    pub(crate) volumes: Arc<dyn Volumes>,
    pub(crate) documents: Arc<dyn Documents>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) tenants: Arc<Vec<TenantId>>,
    pub(crate) proxy: Proxy,
    pub(crate) now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

/// The E2B door and the service behind its templates.
#[derive(Clone)]
pub(crate) struct E2b {
    pub(crate) door: DoorState,
    pub(crate) templates: Arc<TemplateService>,
}

/// Starts the services.
pub(crate) async fn start(
    config: &Config,
    ground: Ground,
    interpreter: &Interpreter,
) -> Result<E2b, ServeError> {
    let templates = TemplateService::start(
        TemplateConfig::new(config.data_dir.join(UPLOADS)),
        ground.control.clone(),
        ground.documents.clone(),
        vec![BuiltIn::ready("base", "base"), interpreter.template()],
        ground.now.clone(),
    );
    let templates = templates.await.map_err(ServeError::Services)?;
    let limits = atoll_vault::Limits::default();
    let secrets = Secrets::open(ground.documents, limits, ground.now.clone());
    let secrets = Arc::new(secrets.await.map_err(ServeError::Services)?);
    let door = DoorState {
        directory: Directory::new(ground.control.clone(), ground.tenants),
        control: ground.control,
        templates: templates.clone(),
        volumes: ground.volumes,
        secrets,
        pools: ground.pools,
        keys: ground.keys,
        proxy: ground.proxy,
        config: Arc::new(door_config(config)),
        now: ground.now,
        turns: Turns::default(),
    };
    Ok(E2b { door, templates })
}

impl E2b {
    /// What names of templates mean.
    pub(crate) fn names(&self) -> Arc<dyn Templates> {
        self.templates.clone()
    }
}

fn door_config(config: &Config) -> DoorConfig {
    DoorConfig {
        domain: config.public_host.clone(),
        timeout_max: Duration::from_secs(config.limits.timeout_seconds_max),
        allow_no_expiry: config.limits.allow_no_expiry,
        create_wait: CREATE_WAIT,
        internet: config.runtime.network.uplink != Uplink::None,
        default_cpu_millis: config.defaults.cpu_millis,
        default_memory_bytes: config.defaults.memory_mib.saturating_mul(1 << 20),
        ..DoorConfig::default()
    }
}
