//! `cargo xtask test`: every check there is, in the order in which they fail fastest.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::command::{cargo, run as execute};
use crate::{build, conformance, fuzz, packages, tidy};

struct Stage {
    name: &'static str,
    run: fn() -> Result<()>,
}

const STAGES: &[Stage] = &[
    Stage { name: "static", run: static_checks },
    Stage { name: "tidy", run: tidy::run },
    Stage { name: "unit", run: unit },
    Stage { name: "fuzz", run: fuzz::all_briefly },
    Stage { name: "e2e", run: e2e },
    Stage { name: "conformance", run: conformance::run },
];

/// Runs the named stages, or all; a failure doesn't hide what later stages would say.
pub(crate) fn run(names: &[String]) -> Result<()> {
    if let Some(unknown) = names.iter().find(|n| STAGES.iter().all(|s| s.name != n.as_str())) {
        let known: Vec<&str> = STAGES.iter().map(|s| s.name).collect();
        bail!("there is no stage {unknown:?}; stages are: {}", known.join(", "));
    }
    let chosen = STAGES.iter().filter(|s| names.is_empty() || names.iter().any(|n| n == s.name));
    let mut results = Vec::new();
    for stage in chosen {
        println!("\n==> {}", stage.name);
        let start = Instant::now();
        let result = (stage.run)();
        if let Err(error) = &result {
            eprintln!("{}: {error:#}", stage.name);
        }
        results.push((stage.name, result, start.elapsed()));
    }
    summarise(&results)
}

fn summarise(results: &[(&str, Result<()>, Duration)]) -> Result<()> {
    println!("\n==> summary");
    for (name, result, took) in results {
        let verdict = if result.is_ok() { "passed" } else { "FAILED" };
        println!("{name:<12} {verdict}  {:>6.1} s", took.as_secs_f64());
        if let Err(error) = result {
            println!("             {error:#}");
        }
    }
    let failed = results.iter().filter(|(_, result, _)| result.is_err()).count();
    if failed > 0 {
        bail!("{failed} of {} stages failed", results.len());
    }
    Ok(())
}

fn static_checks() -> Result<()> {
    execute(cargo().args(["fmt", "--all", "--check"]))?;
    let mut clippy = cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--all-features", "--locked"]);
    execute(clippy.args(["--", "--deny", "warnings"]))
}

fn unit() -> Result<()> {
    cargo_test(&["--workspace", "--exclude", "atoll-e2e", "--all-features"])
}

fn e2e() -> Result<()> {
    cargo_test(&["--package", "atoll-e2e"])
}

/// Tests find the programs by variables, since cargo builds no binaries of other packages for them.
fn cargo_test(selection: &[&str]) -> Result<()> {
    packages::ensure(packages::TEST)?;
    let programs = build::for_tests()?;
    let mut test = cargo();
    test.args(["test", "--locked"]).args(selection);
    test.env("ATOLL_KERNEL_PYTHON", build::interpreter_python()?);
    test.env("ATOLL_INTERPRETER_FOLDER", build::interpreter_folder()?);
    execute(test.env("ATOLL_BIN", &programs.atoll).env("ATOLL_AGENT", &programs.agent))
}
