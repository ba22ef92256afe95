//! `atoll exec`, and the running of commands that `run` shares.

use std::io::Write;
use std::process::ExitCode;

use super::pairs;
use crate::args::Exec;
use crate::client::{Client, Command, Outcome, Output};
use crate::error::Error;
use crate::output;

/// What we report for a command that has no status, because a signal or its timeout ended it.
const STOPPED: u8 = 255;

/// Runs a command and passes on its output and status.
pub(super) async fn run(client: &Client, options: Exec) -> Result<ExitCode, Error> {
    let command = Command {
        argv: options.command,
        cwd: options.cwd,
        envs: pairs::variables(&options.env)?,
        timeout: options.timeout.map(|seconds| seconds.saturating_mul(1000)),
    };
    stream(client, &options.id, &command).await
}

/// Runs `command` and prints its lines as they come.
pub(super) async fn stream(
    client: &Client,
    id: &str,
    command: &Command,
) -> Result<ExitCode, Error> {
    let mut show = |line| match line {
        Output::Stdout(line) => output::text(&line),
        Output::Stderr(line) => std::io::stderr().write_all(line.as_bytes()).map_err(Error::Output),
    };
    match client.exec(id, command, &mut show).await? {
        Outcome::Exit(code) => Ok(ExitCode::from(code)),
        Outcome::Stopped(why) => {
            eprintln!("the command was stopped: {}", output::plain(&why));
            Ok(ExitCode::from(STOPPED))
        }
    }
}
