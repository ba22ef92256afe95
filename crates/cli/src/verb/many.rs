//! Verbs over several sandboxes: all are tried, whatever becomes of one.

use std::process::ExitCode;

use crate::client::Client;
use crate::error::Error;
use crate::output;

/// Freezes or thaws.
pub(super) async fn change(client: &Client, ids: &[String], verb: &str) -> Result<ExitCode, Error> {
    let mut failed = 0;
    for id in ids {
        failed += told(id, client.change(id, verb).await)?;
    }
    verdict(failed, ids.len())
}

/// Removes.
pub(super) async fn remove(client: &Client, ids: &[String]) -> Result<ExitCode, Error> {
    let mut failed = 0;
    for id in ids {
        failed += told(id, client.remove(id).await)?;
    }
    verdict(failed, ids.len())
}

/// Prints the id or the error; the number of failures.
fn told(id: &str, result: Result<(), Error>) -> Result<usize, Error> {
    match result {
        Ok(()) => output::text(&format!("{id}\n")).map(|()| 0),
        Err(error) => {
            error.print();
            Ok(1)
        }
    }
}

fn verdict(failed: usize, asked: usize) -> Result<ExitCode, Error> {
    match (failed, asked) {
        (0, _) => Ok(ExitCode::SUCCESS),
        // The one error has been told.
        (_, 1) => Ok(ExitCode::FAILURE),
        _ => Err(Error::Some { failed, asked }),
    }
}
