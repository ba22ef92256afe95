//! The server: configuration, one listener for every door, and an orderly end.

mod app;
mod banner;
pub mod config;
mod data_dir;
mod error;
mod interpreter;
mod layers;
mod listener;
mod logging;
mod metrics;
mod native;
mod pools;
mod probes;
mod server;
mod services;
mod shutdown;
mod wiring;

pub use config::{Config, Uplink};
pub use error::ServeError;
pub use logging::init_logging;
pub use server::{Server, serve};
pub use shutdown::signalled;
