//! The programs under test.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// `atoll` and the static agent.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Server, spawner and client.
    pub atoll: PathBuf,
    /// First process of every sandbox.
    pub agent: PathBuf,
}

impl Programs {
    /// Those that `cargo xtask test` has built.
    ///
    /// # Errors
    /// When the variables that name them are not set.
    pub fn from_env() -> Result<Self> {
        let find = |name| {
            std::env::var_os(name).map(PathBuf::from).with_context(|| {
                format!("{name} is not set: run these tests with `cargo xtask test e2e`")
            })
        };
        Ok(Self { atoll: find("ATOLL_BIN")?, agent: find("ATOLL_AGENT")? })
    }
}
