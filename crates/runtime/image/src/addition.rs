//! Images made on this machine: files laid over the host image by somebody else's recipe.

use std::path::PathBuf;

use tokio::sync::watch;

/// How far such an image is; its maker sends this, whoever wants the image waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addition {
    /// Being made; how far it is, for people.
    Building(String),
    /// Complete.
    Ready {
        /// The files, laid over the host image's.
        tree: PathBuf,
        /// Variables that replace the host image's.
        env: Vec<(String, String)>,
    },
    /// It can't be made; why, and what to do.
    Failed(String),
}

/// Where a store learns how far an image is.
pub type AdditionState = watch::Receiver<Addition>;
