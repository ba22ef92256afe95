//! `cargo xtask fuzz`: the decoders of what strangers send, under libFuzzer, on the stable compiler.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::command::{cargo, program, root, run as execute, target};

const TARGETS: &[&str] = &["frames", "paths"];

/// Coverage as libFuzzer reads it; what `cargo fuzz` passes, without the sanitizers that need an
/// unstable compiler.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 \
                     --cfg fuzzing";
/// Inputs tried per target in a test run: enough to see that the target works and to catch what is
/// broken outright.
const RUNS_IN_TESTS: &str = "-runs=200000";

/// Fuzzes one target with libFuzzer's own arguments, until it is stopped.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        bail!("name a target: {}", TARGETS.join(", "))
    };
    if !TARGETS.contains(&name.as_str()) {
        bail!("there is no target {name:?}; targets are: {}", TARGETS.join(", "));
    }
    let built = build()?;
    let corpus = target().join("fuzz-corpus").join(name);
    std::fs::create_dir_all(&corpus)?;
    execute(program(built.join(name), rest).arg(corpus))
}

/// Tries every target for a bounded number of inputs.
pub(crate) fn all_briefly() -> Result<()> {
    let built = build()?;
    for name in TARGETS {
        execute(program(built.join(name), [RUNS_IN_TESTS, "-verbosity=0"]).current_dir(&built))?;
    }
    Ok(())
}

fn build() -> Result<PathBuf> {
    let folder = target().join("fuzz");
    // Named, though it is this machine's own, so that build scripts don't get the flags.
    let machine = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--target", &machine]);
    build.current_dir(root().join("fuzz"));
    execute(build.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", &folder))?;
    Ok(folder.join(machine).join("release"))
}
