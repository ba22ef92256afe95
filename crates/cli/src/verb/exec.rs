//! `atoll exec`, and the running of commands that `run` shares.

use std::io::Write;
use std::process::ExitCode;

use super::pairs;
use crate::args::Exec;
use crate::client::{Client, Command, Outcome, Output};
use crate::error::Error;
use crate::output;

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
        Outcome::Exit(code) => Ok(exit_code(code)),
        Outcome::Stopped(why) => {
            eprintln!("{}", output::plain(&why));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// A status as a shell would have it; a negative one is a signal.
fn exit_code(code: i32) -> ExitCode {
    let code = if code < 0 { 128_i32.saturating_sub(code) } else { code };
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::exit_code;

    #[test]
    fn signals_look_as_in_a_shell() {
        for (code, shell) in [(0, 0), (7, 7), (255, 255), (-9, 137), (-1, 129), (4000, 255)] {
            assert_eq!(exit_code(code), ExitCode::from(shell), "{code}");
        }
    }
}
