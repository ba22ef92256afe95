//! The published packages, installed below `target` and run from there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::command::{is_root, program, root, run};
use crate::packages;

/// How a suite is installed and run.
enum Kind {
    /// A virtual environment of this name; pytest with these options besides.
    Pytest { venv: &'static str, options: &'static [&'static str] },
    /// A copy of the suite with its packages beside it.
    Node,
}

/// A folder below tests/conformance.
struct Suite {
    title: &'static str,
    folder: &'static str,
    kind: Kind,
}

/// Files of one module share sandboxes, so a module stays with one worker.
const IN_TWO: &[&str] = &["--numprocesses=2", "--dist=loadfile"];

const SUITES: &[Suite] = &[
    Suite {
        title: "OpenSandbox, Python",
        folder: "python",
        kind: Kind::Pytest { venv: "venv", options: &[] },
    },
    Suite { title: "OpenSandbox, JavaScript", folder: "js", kind: Kind::Node },
    Suite {
        title: "E2B, Python",
        folder: "e2b-python",
        kind: Kind::Pytest { venv: "venv-e2b", options: IN_TWO },
    },
    Suite {
        title: "E2B of 2025, Python",
        folder: "e2b-python-old",
        kind: Kind::Pytest { venv: "venv-e2b-old", options: &[] },
    },
    Suite { title: "E2B, JavaScript", folder: "e2b-js", kind: Kind::Node },
];

/// Milliseconds one JavaScript file may take; pytest.ini bounds each test of Python.
const NODE_PATIENCE: &str = "--test-timeout=240000";

/// A suite with its packages.
pub(super) struct Installed {
    /// What a report calls it.
    pub title: &'static str,
    suite: &'static Suite,
    /// The Python of its environment, or the folder with its copy.
    place: PathBuf,
}

/// Every suite, its packages installed.
pub(super) fn install(home: &Path) -> Result<Vec<Installed>> {
    let install = |suite: &'static Suite| {
        let place = match suite.kind {
            Kind::Pytest { venv, .. } => python(&home.join(venv), suite.folder),
            Kind::Node => node(&home.join(suite.folder), suite.folder),
        };
        let place = place.with_context(|| format!("can't install {}", suite.title))?;
        Ok(Installed { title: suite.title, suite, place })
    };
    SUITES.iter().map(install).collect()
}

impl Installed {
    /// Runs it to the end; a failing test is an error.
    pub(super) fn run(&self, environment: &[(&str, String)]) -> Result<()> {
        println!("\n--> {}", self.title);
        match self.suite.kind {
            Kind::Pytest { options, .. } => {
                run_pytest(&self.place, self.suite.folder, options, environment)
            }
            Kind::Node => run_node(&self.place, environment),
        }
    }
}

fn source(folder: &str) -> PathBuf {
    root().join("tests/conformance").join(folder)
}

/// A Python with the pinned packages; its path.
fn python(venv: &Path, folder: &str) -> Result<PathBuf> {
    let python = venv.join("bin/python");
    let wanted = source(folder).join("requirements.txt");
    let stamp = venv.join("installed.txt");
    if is_current(&wanted, &stamp) {
        return Ok(python);
    }
    make_venv(venv)?;
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

/// A folder with the suite and the pinned npm packages; its path.
fn node(copy: &Path, folder: &str) -> Result<PathBuf> {
    let suite = source(folder);
    let (wanted, stamp) = (suite.join("package.json"), copy.join("installed.json"));
    let current = is_current(&wanted, &stamp);
    std::fs::create_dir_all(copy).context("can't create a folder for the JavaScript suite")?;
    copy_files(&suite, copy)?;
    if !current {
        let locked = suite.join("package-lock.json").is_file();
        let verb = if locked { "ci" } else { "install" };
        let mut npm = program("npm", [verb, "--no-audit", "--no-fund", "--loglevel=error"]);
        run(npm.current_dir(copy))?;
        std::fs::copy(&wanted, &stamp).context("can't note what is installed")?;
    }
    Ok(copy.to_owned())
}

fn run_pytest(
    python: &Path,
    folder: &str,
    options: &[&str],
    environment: &[(&str, String)],
) -> Result<()> {
    let mut pytest = program(python, ["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    pytest.args(options).current_dir(source(folder));
    pytest.env("PYTHONDONTWRITEBYTECODE", "1");
    // The command-line client of the packages is run by its name.
    let bin = python.parent().context("python lies in a folder")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths(std::iter::once(bin.to_owned()).chain(std::env::split_paths(&path)))?;
    run(pytest.env("PATH", path).envs(environment.iter().map(|(k, v)| (k, v))))
}

fn run_node(suite: &Path, environment: &[(&str, String)]) -> Result<()> {
    let mut files: Vec<PathBuf> = list(suite)?;
    files.retain(|path| path.to_string_lossy().ends_with(".test.mjs"));
    ensure!(!files.is_empty(), "there are no *.test.mjs files in {}", suite.display());
    // A client's leftover timer must not hold the run up.
    let options = [
        "--test",
        "--test-force-exit",
        "--test-reporter=spec",
        "--test-concurrency=2",
        NODE_PATIENCE,
    ];
    let mut node = program("node", options);
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
