//! `atoll-agent`: the first process of a sandbox. It reaps, runs the entrypoint, and serves.
//!
//! Started by a launcher without arguments, it finds its listening Unix socket at descriptor 3, its
//! configuration as JSON at 4, and optionally a log ring at 5. With `--stdio` the configuration is
//! standard input, the log ring standard output, and the door a port. For development,
//! `--listen ADDRESS` or `--unix PATH` serve without any of that and print where.

mod account;
mod config;
mod defaults;
mod door;
mod entrypoint;
mod logs;
mod sandbox;
mod serve;
mod up;

use anyhow::{Context, Result, bail};
use std::{io::Write, process::ExitCode};

const USAGE: &str = "usage: atoll-agent [--listen ADDRESS | --unix PATH | --stdio]; \
    without arguments a launcher must pass a socket as descriptor 3 and the configuration as 4";

fn main() -> ExitCode {
    match start() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Nobody is left to hear a failure to complain.
            writeln!(std::io::stderr(), "atoll-agent: {error:#}").ok();
            ExitCode::from(2)
        }
    }
}

fn start() -> Result<u8> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let inherited = match words[..] {
        [] => Some(sandbox::Inherited::take().context(USAGE)?),
        ["--stdio"] => Some(sandbox::Inherited::take_standard()?),
        _ => None,
    };
    // One thread serves everything; what blocks goes to short-lived threads beside it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(async {
        match (words.as_slice(), inherited) {
            (_, Some(inherited)) => sandbox::run(inherited).await,
            (["--listen", address], _) => serve::on_address(address).await,
            (["--unix", path], _) => serve::on_path(path).await,
            _ => bail!(USAGE),
        }
    });
    // Do not wait for threads that hang in the kernel.
    runtime.shutdown_background();
    code
}
