//! Building the two programs: `atoll`, and the static `atoll-agent` that runs inside sandboxes.

use std::os::unix::fs::PermissionsExt as _;
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

/// Where trees of the code interpreter are kept: a gigabyte from the registries, for every checkout
/// and every server of this user. Private, since folders in it are open to all.
pub(crate) fn interpreter_folder() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let folder = cache.context("neither XDG_CACHE_HOME nor HOME is set")?.join("atoll");
    std::fs::create_dir_all(&folder).context("can't create the cache folder")?;
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
    Ok(folder.join("code-interpreter"))
}

/// The Python of the code interpreter's tree, built once for a recipe; real kernels are tested.
pub(crate) fn interpreter_python() -> Result<PathBuf> {
    let folder = interpreter_folder()?;
    let mut build = cargo();
    build.args(["run", "--quiet", "--package", "atoll-interpreter-image", "--"]).arg(folder);
    let tree = output(&mut build).context("can't build the code interpreter's tree")?;
    Ok(Path::new(tree.trim()).join("opt/code-interpreter/bin/python3"))
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
