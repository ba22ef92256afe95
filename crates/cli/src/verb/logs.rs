//! `atoll logs`.

use std::process::ExitCode;

use crate::client::Client;
use crate::error::Error;
use crate::output;

/// Prints what the entrypoint printed, byte for byte.
pub(super) async fn run(client: &Client, id: &str, tail: Option<usize>) -> Result<ExitCode, Error> {
    let mut response = client.logs(id, tail).await?;
    while let Some(piece) = response.chunk().await.map_err(|_| Error::CutOff)? {
        output::bytes(&piece)?;
    }
    Ok(ExitCode::SUCCESS)
}
