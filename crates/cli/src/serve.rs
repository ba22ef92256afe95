//! `atoll serve`.

use std::path::PathBuf;
use std::process::ExitCode;

use atoll_server::{Config, ServeError, Server, init_logging, signalled};

use crate::args::Serve;
use crate::error::Error;
use crate::output;

/// Runs the server until it is told to stop.
pub(crate) async fn run(options: Serve, data_dir: Option<PathBuf>) -> Result<ExitCode, Error> {
    let mut config = match &options.config {
        Some(path) => Config::read(path).map_err(ServeError::from)?,
        None => Config::default(),
    };
    // What is typed wins over what is written.
    config.listen = options.listen.unwrap_or(config.listen);
    config.data_dir = data_dir.unwrap_or(config.data_dir);
    init_logging(&config.log);
    let server = Server::bind(config).await?;
    // A server whose output nobody reads is still a server.
    output::text(&server.banner()).or_else(Error::unless_broken_pipe)?;
    let mut failure = None;
    server.run(async { failure = signalled().await.err() }).await;
    failure.map_or(Ok(ExitCode::SUCCESS), |error| Err(Error::Signals(error)))
}

/// Where a server without configuration keeps its data.
pub(crate) fn default_data_dir() -> PathBuf {
    Config::default().data_dir
}
