use crate::{
    Error,
    folder::{self, UNFINISHED},
    recipe::{
        ACORN, FILES, JAVASCRIPT, NODE_VERSION, PREFIX, PYTHON, PYTHON_PACKAGES, node_package,
    },
};
use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};
use tokio::process::Command;

/// How long one program may take; the longest fetches some hundred megabytes.
const STEP_TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// How much of a failed program's words is passed on.
const SAID_BYTES_MAX: usize = 2000;
/// Anybody in the sandbox may install packages beside these.
const OPEN: u32 = 0o777;
const EXECUTABLE: u32 = 0o755;

/// Builds the tree at `into`, unless it is there; a tree that is there is complete. Its folder
/// becomes private to this user, since folders in the tree are open to everybody. When another
/// server is building there, its tree is waited for.
pub async fn build(into: &Path, progress: impl Fn(&str)) -> Result<(), Error> {
    let package = node_package().ok_or(Error::Processor(std::env::consts::ARCH))?;
    let parent = into.parent().unwrap_or(Path::new("/")).to_owned();
    folder::prepare_folder(&parent)?;
    // Dropped last, so that nobody takes this work for a leftover.
    let _alone = folder::lock(&parent, &progress).await?;
    if into.is_dir() {
        return Ok(());
    }
    let swept = parent.clone();
    let sweeping = tokio::task::spawn_blocking(move || folder::sweep(&swept));
    sweeping.await.map_err(|panic| failed("sweep", &parent)(panic.into()))?;
    let unfinished = Unfinished::within(&parent)?;
    let tree = Tree::new(unfinished.path.join("tree"));
    create(&tree.prefix)?;
    progress("making a Python environment");
    tree.make_environment().await?;
    progress("installing Python packages");
    tree.install_packages(&unfinished.path).await?;
    progress("installing the JavaScript kernel");
    tree.install_node(package, &unfinished.path.join("npm")).await?;
    progress("setting up");
    tree.write_files()?;
    tree.make_font_list().await?;
    tree.relocate().await?;
    open_folders(&tree.prefix)?;
    unfinished.finish(&tree.root, into)
}

/// A folder for work, removed when it is no longer needed.
struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    fn within(parent: &Path) -> Result<Self, Error> {
        let number = getrandom::u64().expect("Linux always has a random source");
        let path = parent.join(format!("{UNFINISHED}{number:016x}"));
        fs::create_dir(&path).map_err(failed("create", &path))?;
        Ok(Self { path })
    }

    fn finish(self, tree: &Path, into: &Path) -> Result<(), Error> {
        fs::rename(tree, into).map_err(failed("rename to", into))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // What stays behind goes with the next build.
        fs::remove_dir_all(&self.path).ok();
    }
}

/// The tree while it lies elsewhere than in a sandbox.
struct Tree {
    root: PathBuf,
    prefix: PathBuf,
}

impl Tree {
    fn new(root: PathBuf) -> Self {
        let prefix = root.join(PREFIX.trim_start_matches('/'));
        Self { root, prefix }
    }

    fn python(&self) -> PathBuf {
        self.prefix.join("bin/python3")
    }

    async fn make_environment(&self) -> Result<(), Error> {
        if !Path::new(PYTHON).exists() {
            return Err(Error::Missing { program: PYTHON, package: "python3" });
        }
        let mut command = Command::new(PYTHON);
        command.args(["-c", "import ensurepip, venv"]);
        run("looking for pip", &mut command).await.map_err(|error| match error {
            Error::Step { .. } => {
                Error::Missing { program: "Python's venv", package: "python3-venv" }
            }
            other => other,
        })?;
        let mut command = Command::new(PYTHON);
        command.args(["-m", "venv"]).arg(&self.prefix);
        run("making a Python environment", &mut command).await.map(drop)
    }

    async fn install_packages(&self, scratch: &Path) -> Result<(), Error> {
        let list = scratch.join("requirements.txt");
        write(&list, &PYTHON_PACKAGES.join("\n"))?;
        let mut command = Command::new(self.python());
        command.args(["-m", "pip", "install", "--quiet", "--no-input", "--no-compile"]);
        // The list is complete, so there is nothing to resolve, and nothing is run to install it.
        command.args(["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"]);
        command.arg("--requirement").arg(&list);
        run("installing Python packages", &mut command).await.map(drop)
    }

    async fn install_node(&self, package: &str, scratch: &Path) -> Result<(), Error> {
        create(scratch)?;
        write(&scratch.join("package.json"), "{\"private\":true}")?;
        let mut command = Command::new("npm");
        command.current_dir(scratch).args(["install", "--no-audit", "--no-fund"]);
        command.args(["--ignore-scripts", &format!("{package}@{NODE_VERSION}"), ACORN]);
        run("installing the JavaScript kernel", &mut command).await.map_err(
            |error| match error {
                Error::File { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                    Error::Missing { program: "npm", package: "npm" }
                }
                other => other,
            },
        )?;
        let modules = scratch.join("node_modules");
        let kernel = self.prefix.join(JAVASCRIPT);
        create(&kernel)?;
        let moves = [
            (modules.join(package).join("bin/node"), self.prefix.join("bin/node")),
            (modules.join("acorn/dist/acorn.js"), kernel.join("acorn.js")),
        ];
        for (from, to) in moves {
            fs::rename(&from, &to).map_err(failed("find in its package", &from))?;
            set_mode(&to, EXECUTABLE)?;
        }
        Ok(())
    }

    fn write_files(&self) -> Result<(), Error> {
        let site = site_packages(&self.prefix)?;
        for (place, text) in FILES {
            let path = match place.strip_prefix("{site}/") {
                Some(name) => site.join(name),
                None => self.prefix.join(place),
            };
            create(path.parent().expect("every file lies in a folder"))?;
            write(&path, text)?;
            if place.ends_with(".sh") {
                fs::set_permissions(&path, Permissions::from_mode(EXECUTABLE))
                    .map_err(failed("make executable", &path))?;
            }
        }
        Ok(())
    }

    /// The first import of matplotlib lists all fonts; it shall find the list made.
    async fn make_font_list(&self) -> Result<(), Error> {
        let place = self.prefix.join("var/matplotlib");
        create(&place)?;
        let mut command = Command::new(self.python());
        command.env("MPLCONFIGDIR", place).args(["-B", "-c", "import matplotlib.pyplot"]);
        run("listing fonts", &mut command).await.map(drop)
    }

    /// Makes programs and compiled files name the place where they will lie.
    async fn relocate(&self) -> Result<(), Error> {
        let built = self.prefix.to_string_lossy().into_owned();
        for path in entries(&self.prefix.join("bin"))? {
            // Links, and programs that are no text, name nothing.
            let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
            if is_file && let Ok(text) = fs::read_to_string(&path) {
                write(&path, &text.replace(&built, PREFIX))?;
            }
        }
        let mut command = Command::new(self.python());
        command.args(["-m", "compileall", "-q", "-j", "0", "-s", &built, "-p", PREFIX]);
        command.arg(self.prefix.join("lib"));
        // Some packages carry samples in the syntax of other versions, which cannot be compiled.
        match run("compiling Python packages", &mut command).await {
            Ok(_) | Err(Error::Step { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }
}

async fn run(step: &'static str, command: &mut Command) -> Result<Output, Error> {
    run_within(STEP_TIME_MAX, step, command).await
}

async fn run_within(
    time_max: Duration,
    step: &'static str,
    command: &mut Command,
) -> Result<Output, Error> {
    let program = PathBuf::from(command.as_std().get_program());
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let ended = tokio::time::timeout(time_max, running).await;
    let output = ended.map_err(|_| Error::Slow { step, minutes: time_max.as_secs() / 60 })?;
    let output = output.map_err(failed("run", &program))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = [output.stdout, output.stderr].concat();
    let end = &said[said.len().saturating_sub(SAID_BYTES_MAX)..];
    let said = String::from_utf8_lossy(end).trim().to_owned();
    Err(Error::Step { step, status: output.status.to_string(), said })
}

/// `PREFIX/lib/python3.N/site-packages`.
fn site_packages(prefix: &Path) -> Result<PathBuf, Error> {
    let lib = prefix.join("lib");
    let is_python = |path: &PathBuf| {
        path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"python"))
    };
    let found = entries(&lib)?.into_iter().find(is_python);
    let missing = || Error::File {
        action: "find Python's packages in",
        path: lib.clone(),
        source: io::ErrorKind::NotFound.into(),
    };
    Ok(found.ok_or_else(missing)?.join("site-packages"))
}

/// Opens every folder, so that any user of a sandbox may add packages and replace these.
fn open_folders(folder: &Path) -> Result<(), Error> {
    set_mode(folder, OPEN)?;
    for path in entries(folder)? {
        if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            open_folders(&path)?;
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = fs::read_dir(folder).map_err(failed("read", folder))?;
    Ok(read.flatten().map(|entry| entry.path()).collect())
}

fn create(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(failed("create", folder))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(failed("write", path))
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(failed("change the permissions of", path))
}

pub(crate) fn failed(
    action: &'static str,
    path: impl AsRef<OsStr>,
) -> impl FnOnce(io::Error) -> Error {
    let path = PathBuf::from(path.as_ref());
    move |source| Error::File { action, path, source }
}

#[cfg(test)]
mod tests;
