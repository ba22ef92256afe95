//! Running other programs and finding the tree.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask lies one level below the root").to_owned()
}

/// Where build products and caches go.
pub(crate) fn target() -> PathBuf {
    root().join("target")
}

/// The cargo that runs us, at the root of the workspace.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// `program arguments…` at the root of the workspace.
pub(crate) fn program<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Runs to the end with our own output; a status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = describe(command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("can't start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Runs to the end and returns what it wrote to stdout.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = describe(command);
    let done = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("can't start `{line}`"))?;
    if !done.status.success() {
        bail!("`{line}` ended with {}", done.status);
    }
    String::from_utf8(done.stdout).with_context(|| format!("`{line}` wrote no text"))
}

/// The full path of a program on PATH or in the system's own folders.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// Whether we may install packages and make namespaces.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
