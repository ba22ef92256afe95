//! Why the server can't start.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::ConfigError;

/// Why the server can't start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration can't be used.
    #[error("the configuration can't be used")]
    Config(#[from] ConfigError),
    /// A file of the data folder can't be used.
    #[error("{doing} {path}")]
    DataDir {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it didn't work.
        source: std::io::Error,
    },
    /// Another server has the data folder.
    #[error(
        "another atoll server uses {0}; stop it, or give this one its own folder with --data-dir"
    )]
    InUse(PathBuf),
    /// `ATOLL_API_KEY` is no key.
    #[error("ATOLL_API_KEY: use at least 16 visible ASCII characters, or unset it")]
    BadKey,
    /// The records can't be opened.
    #[error("the records can't be opened")]
    Store(#[source] atoll_engine::seam::StoreError),
    /// The engine can't take over.
    #[error("the engine can't start")]
    Engine(#[source] atoll_core::Error),
    /// What stands beside the lifecycle can't start.
    #[error("templates or secrets can't be read")]
    Services(#[source] atoll_core::Error),
    /// The runtime can't work here.
    #[error("the runtime can't start")]
    Runtime(#[source] atoll_runtime_local::StartError),
    /// The server's own program, which is also the spawner, can't be found.
    #[error("the path of this program can't be found")]
    Program(#[source] std::io::Error),
    /// The address can't be listened on.
    #[error("can't listen on {address}; is another program using it?")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}
