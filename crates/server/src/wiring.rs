//! The one place where runtimes are made.

use std::sync::Arc;

use atoll_engine::Runtime;
use atoll_runtime_sim::SimRuntime;

use crate::config::{Config, RuntimeKind};
use crate::error::ServeError;

/// The runtime that the configuration names.
pub(crate) async fn runtime(config: &Config) -> Result<Arc<dyn Runtime>, ServeError> {
    match config.runtime.kind {
        RuntimeKind::Sim => Ok(SimRuntime::new()),
        RuntimeKind::Local => Err(ServeError::Runtime(
            "this build has no local runtime; set runtime.kind = \"sim\"".to_owned(),
        )),
    }
}
