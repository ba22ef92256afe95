//! The one place where runtimes are made.

use std::sync::Arc;

use atoll_control::Volumes;
use atoll_core::{Isolation, Resources};
use atoll_engine::Runtime;
use atoll_runtime_local::{LocalConfig, LocalRuntime, NetworkConfig};
use atoll_runtime_sim::SimRuntime;

use crate::config::{Config, Network, RuntimeKind, Uplink};
use crate::error::ServeError;
use crate::interpreter::Interpreter;

/// The image that is made ready before anybody asks for it.
const FIRST_IMAGE: &str = "base";

/// A runtime, and what is to be done when the server ends.
pub(crate) struct Wired {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) volumes: Arc<dyn Volumes>,
    local: Option<Arc<LocalRuntime>>,
}

impl Wired {
    /// Lets go of the machine; sandboxes go on running.
    pub(crate) fn close(&self) {
        if let Some(local) = &self.local {
            local.close();
        }
    }
}

/// The runtime that the configuration names.
pub(crate) async fn runtime(
    config: &Config,
    interpreter: &Interpreter,
) -> Result<Wired, ServeError> {
    match config.runtime.kind {
        RuntimeKind::Sim => {
            let sim = SimRuntime::new();
            Ok(Wired { runtime: sim.clone(), volumes: sim, local: None })
        }
        RuntimeKind::Local => {
            let program = std::env::current_exe().map_err(ServeError::Program)?;
            let mut local = local_config(config, &program);
            local.images.additions = [interpreter.image()].into();
            let local = LocalRuntime::start(local).await;
            let local = Arc::new(local.map_err(ServeError::Runtime)?);
            tokio::spawn(prefetch(local.clone()));
            Ok(Wired { runtime: local.clone(), volumes: local.clone(), local: Some(local) })
        }
    }
}

async fn prefetch(local: Arc<LocalRuntime>) {
    match local.prefetch(FIRST_IMAGE).await {
        Ok(warnings) => {
            for warning in warnings {
                tracing::warn!(image = FIRST_IMAGE, "{warning}");
            }
        }
        Err(error) => tracing::warn!(image = FIRST_IMAGE, %error, "not ready"),
    }
}

fn local_config(config: &Config, program: &std::path::Path) -> LocalConfig {
    let (runtime, images) = (&config.runtime, &config.images);
    let mut local = LocalConfig::new(&config.data_dir, program);
    if let Some(agent) = &runtime.agent {
        local.agent.clone_from(agent);
    }
    local.network = network_config(&runtime.network);
    local.images.aliases.clone_from(&images.aliases);
    local.images.mirrors.clone_from(&images.mirrors);
    local.images.insecure_registries.clone_from(&images.insecure_registries);
    local.isolation = match runtime.isolation.as_str() {
        "native" => Isolation::Native,
        program => Isolation::Oci(program.to_owned()),
    };
    local.oci_programs.clone_from(&runtime.oci);
    local.allowed_host_paths.clone_from(&runtime.allowed_host_paths);
    local.default_resources = Resources {
        cpu_millis: Some(config.defaults.cpu_millis),
        memory_bytes: Some(config.defaults.memory_mib.saturating_mul(1 << 20)),
        pids: Some(config.defaults.pids),
    };
    local
}

fn network_config(network: &Network) -> NetworkConfig {
    NetworkConfig {
        uplink: match &network.uplink {
            Uplink::None => atoll_runtime_local::Uplink::None,
            Uplink::Host => atoll_runtime_local::Uplink::Host,
            Uplink::Namespace(path) => atoll_runtime_local::Uplink::Namespace(path.clone()),
        },
        subnet: network.subnet,
        resolvers: if network.resolvers.is_empty() {
            atoll_runtime_local::host_resolvers()
        } else {
            network.resolvers.clone()
        },
        allow: network.allow.clone(),
    }
}
