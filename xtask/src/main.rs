//! Everything a developer or a CI machine runs: `cargo xtask <command>`.
#![allow(clippy::print_stdout, reason = "a command-line tool talks on stdout")]

mod bench;
mod build;
mod command;
mod conformance;
mod fuzz;
mod packages;
mod test;
mod tidy;
mod up;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
cargo xtask <command>

  up [ARGS…]           build release binaries, install what is missing, run `atoll serve ARGS…`
  build                build target/release/atoll and the static target/release/atoll-agent
  test [STAGE…]        run every check, or only: static, tidy, unit, fuzz, e2e, conformance
  fuzz TARGET [ARGS…]  fuzz the decoder `frames` or `paths` with libFuzzer until stopped
  tidy                 check the rules of the tree that the compiler can't
  bench [--quick] [--debug] [--given] [--json FILE]
                       measure against fork+exec, runc and crun; writes target/bench.json
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", arguments),
    };
    match command {
        "up" => up::run(rest),
        "build" => build::release().map(|_| ()),
        "test" => test::run(rest),
        "tidy" => tidy::run(),
        "bench" => bench::run(rest),
        "fuzz" => fuzz::run(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => bail!("there is no command {other:?}\n\n{USAGE}"),
    }
}
