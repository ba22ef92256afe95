//! What can be done inside one sandbox: commands, shell sessions, terminals, files and metrics.
//!
//! No HTTP and no wire types live here; the protocols' guest halves translate to these operations.
//!
//! Guarantees: no operation blocks the async thread (blocking work runs on bounded blocking
//! threads, file operations queue only among themselves), every buffer and registry is bounded,
//! and nothing consults NSS or resolves a host name, so a static binary may use all of it.

pub mod accounts;
pub mod command;
pub mod environment;
mod error;
pub mod expand;
pub mod files;
mod guest;
mod id;
pub mod job;
pub mod kernel;
pub mod metrics;
pub mod process;
pub mod ring;
pub mod session;
pub mod settings;
pub mod sys;
pub mod terminal;
pub mod watch;

pub use accounts::Identity;
pub use error::Error;
pub use guest::{Guest, Options};
pub use process::Role;

/// The result of an operation inside the sandbox.
pub type Result<T> = std::result::Result<T, Error>;
