//! Starting a sandbox through an OCI runtime program such as `runc`.
//!
//! The sandbox gets the same files, network, ids, groups and agent as with our own launcher; only
//! the walls are built by that program.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::bootid;
use super::child::{CONFIG_FD, LOG_FD, SOCKET_FD};
use super::identity::Identity;
use super::launch::{self, Forks, Held, Starting};
use super::rootfs::{self, Context};
use crate::net::Cable;
use crate::protocol::{Launch, Launcher, SpawnerConfig, files};
use crate::sys::process::{self, Forked};
use crate::sys::{self, mount};

mod config;
pub(super) mod gvisor;

/// Where the agent is inside; our own launcher needs no such file.
const AGENT_INSIDE: &str = "/.atoll/agent";
const PID_FILE: &str = "oci.pid";
const LOG_FILE: &str = "oci.log";
/// Last words of the program that are repeated in an error.
const WORDS_MAX: usize = 2000;
/// Descriptors beyond the standard three that the program passes on.
const PASSED_ON: &str = "3";

/// Mounts the files and runs the program; the end of `progress` tells how it went.
pub(super) fn start(
    config: &SpawnerConfig,
    stage: &Stage,
    launch: &Launch,
    identity: Identity,
    cable: Cable,
) -> Result<Starting, (io::Error, Identity, Cable)> {
    match begin(config, stage, launch, &identity, &cable) {
        Ok(Forks { pid, pidfd, progress, log, folder }) => {
            Ok(Starting { pid, pidfd, progress, resources: Held { identity, cable, log, folder } })
        }
        Err(error) => {
            stage.release(&launch.dir);
            Err((error, identity, cable))
        }
    }
}

/// Finds the sandbox's first process once the program has left.
pub(super) fn finish(starting: &mut Starting) -> Result<(), String> {
    let found = std::fs::read_to_string(starting.resources.file(PID_FILE))
        .and_then(|text| text.trim().parse().map_err(io::Error::other))
        .map_err(|e| format!("the OCI runtime left no process: {e}"))?;
    starting.pid = found;
    // One that has ended already can't be opened; its end is known by its number.
    if let Ok(pidfd) = process::open_pid(found) {
        starting.pidfd = pidfd;
        bootid::cover_inside(starting);
    }
    Ok(())
}

fn begin(
    config: &SpawnerConfig,
    stage: &Stage,
    launch: &Launch,
    identity: &Identity,
    cable: &Cable,
) -> io::Result<Forks> {
    let Launcher::Oci { program, .. } = &launch.launcher else {
        return Err(io::Error::other("not an OCI launch"));
    };
    let folder = sys::open_path(&launch.dir)?;
    let log = sys::sealed_memory(c"atoll-log", launch.log_bytes)?;
    let socket = launch::agent_socket(launch)?;
    let agent_config = sys::memory_file(c"atoll-config", launch.agent_config.as_bytes())?;
    stage.furnish(launch, identity)?;
    let places = config::Places {
        root: stage.root(launch),
        agent: stage.agent(),
        agent_inside: AGENT_INSIDE,
    };
    let bundle = if launch.launcher.is_gvisor() {
        gvisor::render(launch, &places)
    } else {
        config::render(launch, identity.first_id, &cable.namespace, &places)
    };
    std::fs::write(launch.dir.join("config.json"), bundle)?;
    let group = match &launch.cgroups.unified {
        Some(dir) => Some(sys::open_at(None, dir, libc::O_DIRECTORY)?),
        None => None,
    };
    let (progress, report) = std::io::pipe()?;
    match process::fork_into(0, group.as_ref().map(AsFd::as_fd))? {
        Forked::Child => {
            let run = if launch.launcher.is_gvisor() {
                gvisor::exec(command(config, program), launch, cable, agent_config, &log)
            } else {
                run(config, program, launch, [&socket, &agent_config, &log])
            };
            if let Err(error) = run {
                // The parent reads it; if the parent is gone nobody waits for the answer.
                let _unheard = { report }.write_all(format!("{program}: {error}").as_bytes());
            }
            process::exit_now(0)
        }
        Forked::Parent(pid, pidfd) => Ok(Forks { pid, pidfd, progress, log, folder }),
    }
}

/// In a process of its own: runs the program and waits for it.
fn run(
    config: &SpawnerConfig,
    program: &str,
    launch: &Launch,
    fds: [&OwnedFd; 3],
) -> io::Result<()> {
    if program.ends_with("crun") && !launch.cgroups.v2_limits {
        hide_unified(launch)?;
    }
    let mut command = command(config, program);
    // Its words go to a file, not to its standard error: the sandbox would inherit that.
    command
        .arg("--log")
        .arg(launch.dir.join(LOG_FILE))
        .args(["run", "--detach", "--preserve-fds", PASSED_ON, "--pid-file"])
        .arg(launch.dir.join(PID_FILE))
        .arg("--bundle")
        .arg(&launch.dir)
        .arg(&launch.id);
    let above: Vec<OwnedFd> = fds
        .into_iter()
        .map(|fd| sys::duplicate_above(fd.as_fd(), 16))
        .collect::<io::Result<_>>()?;
    for (fd, number) in above.iter().zip([SOCKET_FD, CONFIG_FD, LOG_FD]) {
        sys::inherit_as(fd.as_fd(), number)?;
    }
    let status = command.status()?;
    if status.success() {
        return Ok(());
    }
    let words = std::fs::read(launch.dir.join(LOG_FILE)).unwrap_or_default();
    let said =
        String::from_utf8_lossy(&words[words.len().saturating_sub(WORDS_MAX)..]).into_owned();
    Err(io::Error::other(format!("ended with {status}: {}", said.trim())))
}

/// crun refuses hosts where v2 is mounted beside v1; it works where it doesn't see v2.
fn hide_unified(launch: &Launch) -> io::Result<()> {
    let Some(dir) = launch.cgroups.unified.as_ref().and_then(|d| d.parent()?.parent()) else {
        return Ok(());
    };
    process::unshare(libc::CLONE_NEWNS)?;
    mount::make_all_private()?;
    mount::detach(dir).context(|| format!("hiding {}", dir.display()))
}

fn command(config: &SpawnerConfig, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .arg("--root")
        .arg(config.data_dir.join("oci"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command
}

/// Where an OCI runtime finds a sandbox's files and the agent. It looks with the sandbox's own
/// ids, which may not walk the data folder; this place exists in the spawner's mounts only.
pub(super) struct Stage(PathBuf);

impl Stage {
    /// Makes the place.
    pub(super) fn make(config: &SpawnerConfig) -> io::Result<Self> {
        let place = PathBuf::from("/run").join(format!("atoll-{}", config.label));
        std::fs::create_dir_all(&place)?;
        let memory = mount::Filesystem::open(c"tmpfs")?;
        memory.set(c"mode", b"711")?;
        mount::attach(memory.mount(0)?.as_fd(), &place)?;
        Ok(Self(place))
    }

    /// Takes it away.
    pub(super) fn remove(&self) -> io::Result<()> {
        mount::detach(&self.0)?;
        std::fs::remove_dir(&self.0)
    }

    fn root(&self, launch: &Launch) -> PathBuf {
        self.0.join(&launch.id)
    }

    fn agent(&self) -> PathBuf {
        self.0.join("agent")
    }

    /// Mounts the sandbox's files for the program to find.
    fn furnish(&self, launch: &Launch, identity: &Identity) -> io::Result<()> {
        if !self.agent().exists() {
            std::fs::File::create_new(self.agent())?;
            mount::attach(mount::clone_tree(&launch.agent, false)?.as_fd(), &self.agent())?;
        }
        // gVisor's kernel has no map of ids: what it shows is what the files have.
        let (first_id, ids) = match launch.launcher.is_gvisor() {
            true => (0, None),
            false => (identity.first_id, Some(identity.namespace.as_fd())),
        };
        let top = self.root(launch);
        std::fs::create_dir(&top)?;
        rootfs::mount_roots(&launch.dir, &top, &launch.roots, first_id, ids)?;
        detach_layers(&launch.dir);
        let root = sys::open_path(&top)?;
        process::as_file_owner(first_id, || {
            rootfs::make_folder(root.as_fd(), Path::new(AGENT_INSIDE), true)?;
            for folder in ["/proc", "/sys", "/dev"] {
                rootfs::make_folder(root.as_fd(), Path::new(folder), false)?;
            }
            rootfs::write_files(root.as_fd(), launch.files.iter())
        })?;
        for bind in &launch.mounts {
            rootfs::bind(&top, bind, first_id, ids)?;
        }
        Ok(())
    }

    /// Lets go of the files of a sandbox that has ended, or never began.
    pub(super) fn release(&self, dir: &Path) {
        detach_layers(dir);
        let Some(id) = dir.file_name() else { return };
        let top = self.0.join(id);
        // One that was never mounted needs no unmounting.
        let _unmounted = mount::detach(&top).and_then(|()| std::fs::remove_dir(&top));
    }
}

/// The overlay holds on to its layers by itself.
fn detach_layers(dir: &Path) {
    for root in subfolders(&dir.join(files::LAYERS)) {
        for layer in subfolders(&root) {
            // One that was never mounted needs no unmounting.
            let _unmounted = mount::detach(&layer);
        }
    }
}

fn subfolders(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir)
        .map(|entries| entries.filter_map(Result::ok).map(|e| e.path()).collect())
        .unwrap_or_default()
}
