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
        Ok(Self { atoll: given("ATOLL_BIN")?, agent: given("ATOLL_AGENT")? })
    }
}

/// Where the code interpreter is that `cargo xtask test` has built.
///
/// # Errors
/// When the variable that names it is not set.
pub fn interpreter_folder() -> Result<PathBuf> {
    given("ATOLL_INTERPRETER_FOLDER")
}

fn given(name: &str) -> Result<PathBuf> {
    let value = std::env::var_os(name).map(PathBuf::from);
    value.with_context(|| format!("{name} is not set: run these tests with `cargo xtask test e2e`"))
}
