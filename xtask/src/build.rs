//! Building the two programs: `atoll`, and the static `atoll-agent` that runs inside sandboxes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use atoll_e2e::programs::Programs;

use crate::command::{cargo, output, program, run, target};

/// Release programs beside each other in `target/release`.
pub(crate) fn release() -> Result<Programs> {
    run(cargo().args(["build", "--release", "--package", "atoll-cli"]))?;
    let folder = target().join("release");
    let agent = folder.join("atoll-agent");
    replace(&static_agent()?, &agent)?;
    Ok(Programs { atoll: folder.join("atoll"), agent })
}

/// A quickly built server beside the agent that ships. In a folder of their own, because cargo
/// puts an agent that is not static beside the server when tests are built.
pub(crate) fn for_tests() -> Result<Programs> {
    run(cargo().args(["build", "--package", "atoll-cli"]))?;
    let folder = target().join("test-programs");
    std::fs::create_dir_all(&folder).context("can't create target/test-programs")?;
    let programs = Programs { atoll: folder.join("atoll"), agent: folder.join("atoll-agent") };
    replace(&target().join("debug/atoll"), &programs.atoll)?;
    replace(&static_agent()?, &programs.agent)?;
    Ok(programs)
}

/// The agent must run in any image, so it is linked statically. Naming the target keeps the flag
/// away from build scripts and gives it a folder that other builds don't overwrite.
fn static_agent() -> Result<PathBuf> {
    let triple = host_triple()?;
    let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    flags.push_str(" -C target-feature=+crt-static");
    let mut build = cargo();
    build.args(["build", "--profile", "agent", "--package", "atoll-agent", "--target", &triple]);
    run(build.env("RUSTFLAGS", flags.trim_start()))?;
    Ok(target().join(triple).join("agent/atoll-agent"))
}

fn host_triple() -> Result<String> {
    let version = output(&mut program("rustc", ["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("`rustc -vV` names no host")
}

/// Replaces by rename: a running copy of the old program must stay whole.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let new = to.with_extension("new");
    std::fs::copy(from, &new)
        .with_context(|| format!("can't copy {} to {}", from.display(), new.display()))?;
    std::fs::rename(&new, to).with_context(|| format!("can't put {} in place", to.display()))
}
