//! What Atoll is compared with: starting a plain process, and two OCI runtimes.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use atoll_e2e::image::Image;
use serde_json::{Value, json};

use crate::command::{output, program};

/// Name of the row that everything is compared with.
pub(super) const TRUE_PROGRAM: &str = "fork+exec /bin/true (static)";

/// A v2 hierarchy beside v1 ones makes crun refuse to work; it is hidden from it.
const HYBRID: &str = "/sys/fs/cgroup/unified";

/// Everything to compare with, ready to run.
pub(super) struct Runtimes {
    true_program: PathBuf,
    pub runc: OciRuntime,
    pub crun: OciRuntime,
}

/// Where the same files lie as an image.
pub(super) fn layout(scratch: &Path) -> PathBuf {
    scratch.join("layout")
}

impl Runtimes {
    pub(super) fn prepare(scratch: &Path) -> Result<Self> {
        let bundle = scratch.join("bundle");
        Image::busybox(&bundle.join("rootfs"))?.write_layout(&layout(scratch))?;
        let mut spec = program("runc", ["spec"]);
        output(spec.current_dir(&bundle))?;
        let path = bundle.join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        config["process"]["args"] = json!(["/bin/true"]);
        config["process"]["terminal"] = json!(false);
        // Some machines may not raise it, and it is the same for both.
        config["process"]["rlimits"] = json!([]);
        std::fs::write(&path, config.to_string()).context("can't write the bundle")?;
        Ok(Self {
            true_program: bundle.join("rootfs/bin/true"),
            runc: OciRuntime::start("runc", scratch, &bundle)?,
            crun: OciRuntime::start("crun", scratch, &bundle)?,
        })
    }

    pub(super) fn fork_exec(&self) -> Result<()> {
        let status = Command::new(&self.true_program).status().context("can't start true")?;
        ensure!(status.success(), "true said {status}");
        Ok(())
    }
}

/// A shell that runs the runtime once for each line it is sent. It lives in a mount namespace of
/// its own, so that hiding the v2 hierarchy costs nothing per run.
pub(super) struct OciRuntime {
    name: &'static str,
    shell: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    runs: usize,
}

impl OciRuntime {
    fn start(name: &'static str, scratch: &Path, bundle: &Path) -> Result<Self> {
        let state = scratch.join(name);
        let hide = if name == "crun" && Path::new(HYBRID).is_dir() {
            format!("umount {HYBRID} || exit 1; ")
        } else {
            String::new()
        };
        let script = format!(
            "{hide}while read id; do {name} --root {} run --bundle {} $id </dev/null >/dev/null; \
             echo $?; done",
            state.display(),
            bundle.display()
        );
        let mut unshare =
            program("unshare", ["--mount", "--propagation", "private", "sh", "-c", &script]);
        let shell = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut shell = shell.with_context(|| format!("can't start a shell for {name}"))?;
        let orders = shell.stdin.take().context("the shell has no stdin")?;
        let answers = BufReader::new(shell.stdout.take().context("the shell has no stdout")?);
        Ok(Self { name, shell, orders, answers, runs: 0 })
    }

    /// Creates, starts, waits for and removes one container.
    pub(super) fn run(&mut self) -> Result<()> {
        self.runs += 1;
        writeln!(self.orders, "atoll-bench-{}-{}", std::process::id(), self.runs)?;
        let mut status = String::new();
        self.answers.read_line(&mut status)?;
        ensure!(status.trim() == "0", "{} ended with status {:?}", self.name, status.trim());
        Ok(())
    }
}

impl Drop for OciRuntime {
    fn drop(&mut self) {
        self.shell.kill().and_then(|()| self.shell.wait()).ok();
    }
}
