//! Starting one sandbox, seen from the spawner.

use std::io::{self, PipeReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use super::child::{self, Prepared};
use super::identity::Identity;
use super::rootfs::Context;
use super::seccomp;
use crate::net::Cable;
use crate::protocol::{Launch, files};
use crate::sys;
use crate::sys::process::{self, Forked};

/// Connections that wait until the agent is up.
const NAMESPACES: i32 =
    libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC;

/// A sandbox that has been forked; whether it becomes one shows when `progress` ends.
pub(super) struct Starting {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    /// Says why it failed, or ends without a word when the agent runs.
    pub(super) progress: PipeReader,
    pub(super) resources: Held,
}

/// What a sandbox holds as long as it lives.
pub(super) struct Held {
    pub(super) identity: Identity,
    pub(super) cable: Cable,
    pub(super) log: OwnedFd,
    /// The sandbox's folder. By descriptor, because another attempt of the same name may have
    /// taken its path by the time something is written there.
    pub(super) folder: OwnedFd,
}

impl Held {
    /// The path of a file in the sandbox's folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd())).join(name)
    }
}

/// The listening socket of the agent, made on the host's side. No folder is shared, so nothing
/// inside can put something else in its place.
pub(super) fn agent_socket(launch: &Launch) -> io::Result<OwnedFd> {
    let dir = sys::open_path(&launch.dir)?;
    // By way of the descriptor, because a socket's path may have 107 bytes only.
    let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(files::SOCKET);
    UnixListener::bind(path).map(Into::into).context(|| "making the agent's socket".into())
}

/// Forks a sandbox with our own launcher.
pub(super) fn native(
    launch: &Launch,
    identity: Identity,
    cable: Cable,
) -> Result<Starting, (io::Error, Identity, Cable)> {
    match fork(launch, &identity, &cable) {
        Ok(Forks { pid, pidfd, progress, log, folder }) => {
            Ok(Starting { pid, pidfd, progress, resources: Held { identity, cable, log, folder } })
        }
        Err(error) => Err((error, identity, cable)),
    }
}

/// A new process and what belongs to it.
pub(super) struct Forks {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    pub(super) progress: PipeReader,
    pub(super) log: OwnedFd,
    pub(super) folder: OwnedFd,
}

fn fork(launch: &Launch, identity: &Identity, cable: &Cable) -> io::Result<Forks> {
    let folder = sys::open_path(&launch.dir)?;
    let log = sys::sealed_memory(c"atoll-log", launch.log_bytes)?;
    let prepared = Prepared {
        ids: identity.namespace.try_clone()?,
        first_id: identity.first_id,
        network: Some(cable.namespace.try_clone()?),
        socket: agent_socket(launch)?,
        config: sys::memory_file(c"atoll-config", launch.agent_config.as_bytes())?,
        log: log.try_clone()?,
        filter: seccomp::program(),
    };
    let group = match &launch.cgroups.unified {
        Some(dir) => Some(sys::open_at(None, dir, libc::O_DIRECTORY)?),
        None => None,
    };
    let (progress, report) = std::io::pipe()?;
    match process::fork_into(NAMESPACES, group.as_ref().map(AsFd::as_fd))
        .context(|| "forking".into())?
    {
        Forked::Child => {
            let error = child::become_sandbox(launch, &prepared);
            // The parent reads it; if the parent is gone nobody waits for the answer.
            let _unheard = { report }.write_all(error.to_string().as_bytes());
            process::exit_now(125)
        }
        Forked::Parent(pid, pidfd) => Ok(Forks { pid, pidfd, progress, log, folder }),
    }
}
