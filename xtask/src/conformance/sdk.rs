//! The published packages, installed below `target` and run from there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::{is_root, program, root, run};
use crate::packages;

/// A Python with the pinned packages; its path.
pub(super) fn python(home: &Path) -> Result<PathBuf> {
    let venv = home.join("venv");
    let python = venv.join("bin/python");
    let wanted = root().join("tests/conformance/python/requirements.txt");
    let stamp = venv.join("installed.txt");
    if is_current(&wanted, &stamp) {
        return Ok(python);
    }
    make_venv(&venv)?;
    let mut install = program(&python, ["-m", "pip", "install", "--quiet", "--requirement"]);
    run(install.arg(&wanted))?;
    std::fs::copy(&wanted, &stamp).context("can't note what is installed")?;
    Ok(python)
}

/// Debian splits the module off, so a fresh machine may lack it.
fn make_venv(venv: &Path) -> Result<()> {
    let make = || {
        let mut command = program("python3", ["-m", "venv", "--clear"]);
        run(command.arg(venv))
    };
    match make() {
        Err(_) if is_root() => {
            packages::install(&["python3-venv"])?;
            make()
        }
        result => result,
    }
}

/// A folder with the suite and the pinned npm package; its path.
pub(super) fn node(home: &Path) -> Result<PathBuf> {
    let suite = root().join("tests/conformance/js");
    let copy = home.join("js");
    let (wanted, stamp) = (suite.join("package.json"), copy.join("installed.json"));
    let current = is_current(&wanted, &stamp);
    std::fs::create_dir_all(&copy).context("can't create a folder for the JavaScript suite")?;
    copy_files(&suite, &copy)?;
    if !current {
        let locked = suite.join("package-lock.json").is_file();
        let verb = if locked { "ci" } else { "install" };
        let mut npm = program("npm", [verb, "--no-audit", "--no-fund", "--loglevel=error"]);
        run(npm.current_dir(&copy))?;
        std::fs::copy(&wanted, &stamp).context("can't note what is installed")?;
    }
    Ok(copy)
}

pub(super) fn run_pytest(python: &Path, environment: &[(&str, String)]) -> Result<()> {
    let mut pytest = program(python, ["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    pytest.current_dir(root().join("tests/conformance/python"));
    pytest.env("PYTHONDONTWRITEBYTECODE", "1");
    // The command-line client of the packages is run by its name.
    let bin = python.parent().context("python lies in a folder")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths(std::iter::once(bin.to_owned()).chain(std::env::split_paths(&path)))?;
    run(pytest.env("PATH", path).envs(environment.iter().map(|(k, v)| (k, v))))
}

pub(super) fn run_node(suite: &Path, environment: &[(&str, String)]) -> Result<()> {
    let mut files: Vec<PathBuf> = list(suite)?;
    files.retain(|path| path.to_string_lossy().ends_with(".test.mjs"));
    anyhow::ensure!(!files.is_empty(), "there are no *.test.mjs files in {}", suite.display());
    let mut node = program("node", ["--test", "--test-reporter=spec", "--test-concurrency=2"]);
    node.args(&files).current_dir(suite);
    run(node.envs(environment.iter().map(|(k, v)| (k, v))))
}

fn is_current(wanted: &Path, stamp: &Path) -> bool {
    matches!((std::fs::read(wanted), std::fs::read(stamp)), (Ok(a), Ok(b)) if a == b)
}

/// Only files, and none that an earlier copy had and the suite no longer has.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for old in list(to)?.iter().filter(|path| path.to_string_lossy().ends_with(".mjs")) {
        std::fs::remove_file(old).with_context(|| format!("can't remove {}", old.display()))?;
    }
    for path in list(from)? {
        let name = path.file_name().context("a file without a name")?;
        std::fs::copy(&path, to.join(name))
            .with_context(|| format!("can't copy {}", path.display()))?;
    }
    Ok(())
}

fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("can't list {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    files.retain(|path| path.is_file());
    files.sort();
    Ok(files)
}
