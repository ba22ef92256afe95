//! `atoll`: the server, and the verbs of a client.
#![allow(clippy::print_stdout, reason = "a command-line tool talks on stdout")]

mod args;
mod client;
mod doctor;
mod error;
mod output;
mod serve;
mod verb;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};
use error::Error;

/// The hidden first word that makes this process a spawner instead.
const SPAWNER: &str = "spawner";

fn main() -> ExitCode {
    // The spawner forks, which is only sound while no other thread exists: nothing comes before it.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == SPAWNER) {
        let config = words.next().unwrap_or_default();
        return atoll_runtime_local::spawner::main(&config.to_string_lossy());
    }
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: can't start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(run(arguments));
    // A read of stdin can't be cancelled; it must not hold the process.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(error) => error.report(),
    }
}

async fn run(arguments: Arguments) -> Result<ExitCode, Error> {
    match arguments.command {
        Command::Serve(options) => serve::run(options, arguments.connection.data_dir).await,
        Command::Doctor => doctor::run(arguments.output),
        Command::Verb(verb) => verb::run(verb, &arguments.connection, arguments.output).await,
    }
}
