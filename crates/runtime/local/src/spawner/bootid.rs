//! A `boot_id` of its own for every start of a sandbox.
//!
//! Programs take the machine's for the name of one boot, so two sandboxes with the same one, or
//! one that was started again with its old one, mislead them.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::launch::Starting;
use super::serve::log;
use crate::protocol::files;
use crate::sys::mount::{self, Attributes};
use crate::sys::process::{self, Forked};

/// Where programs look for it, from the sandbox's root.
const PLACE: &str = "proc/sys/kernel/random/boot_id";

/// Covers the machine's in the tree at `top`, whose `proc` is mounted.
pub(super) fn cover(top: &Path, file: &Path, ids: BorrowedFd<'_>) -> io::Result<()> {
    match show(file, ids) {
        // A server of an earlier version made none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(tree) => mount::attach(tree.as_fd(), &top.join(PLACE)),
    }
}

/// The same in a sandbox that an OCI runtime has started, since those refuse to be told. Its
/// programs may see the machine's until this returns, which is before it counts as running.
pub(super) fn cover_inside(starting: &Starting) {
    if let Err(error) = try_inside(starting) {
        log(&format!("a sandbox sees the machine's boot_id: {error}"));
    }
}

fn try_inside(starting: &Starting) -> io::Result<()> {
    let file = starting.resources.file(files::BOOT_ID);
    let tree = show(&file, starting.resources.identity.namespace.as_fd())?;
    let (mut progress, report) = io::pipe()?;
    // A process of its own: whoever has joined a sandbox's mounts can't be trusted to come back.
    match process::fork_into(0, None)? {
        Forked::Child => {
            let covered = process::join(starting.pidfd.as_fd(), libc::CLONE_NEWNS)
                .and_then(|()| mount::attach(tree.as_fd(), &Path::new("/").join(PLACE)));
            if let Err(error) = covered {
                // The parent reads it; if the parent is gone nobody waits for the answer.
                let _unheard = { report }.write_all(error.to_string().as_bytes());
            }
            process::exit_now(0)
        }
        Forked::Parent(..) => {
            drop(report);
            let mut said = String::new();
            progress.read_to_string(&mut said)?;
            if said.is_empty() { Ok(()) } else { Err(io::Error::other(said)) }
        }
    }
}

/// The file as nobody inside can change it, belonging to root there.
fn show(file: &Path, ids: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let tree = mount::clone_tree(file, false)?;
    let set = libc::MOUNT_ATTR_RDONLY
        | libc::MOUNT_ATTR_NOSUID
        | libc::MOUNT_ATTR_NODEV
        | libc::MOUNT_ATTR_NOEXEC;
    mount::set_attributes(tree.as_fd(), Attributes { set, id_map: Some(ids) }, false)?;
    Ok(tree)
}
