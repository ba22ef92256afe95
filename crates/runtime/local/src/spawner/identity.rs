//! User namespaces: each sandbox has a range of the host's user and group ids for itself.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use crate::sys::process::{self, Forked};

/// Ids per sandbox: every id an ordinary image uses.
pub(super) const IDS_EACH: u32 = 65_536;
/// The first range begins here, above what hosts give to people and services.
const FIRST_ID: u32 = 0x4000_0000;
/// Ranges in all.
const RANGES_MAX: u32 = 16_000;

/// A user namespace with its own range of ids.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The id of the host that is root inside.
    pub(crate) first_id: u32,
    /// The namespace.
    pub(crate) namespace: OwnedFd,
}

/// Hands out identities.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    /// Made and not in use.
    idle: Vec<Identity>,
    /// Ranges of sandboxes that an earlier spawner started.
    foreign: BTreeSet<u32>,
    made: u32,
}

impl Identities {
    /// Never hands out the range that begins at `first_id`.
    pub(crate) fn reserve(&mut self, first_id: u32) {
        self.foreign.insert(first_id);
    }

    /// An identity nobody else has.
    pub(crate) fn take(&mut self) -> io::Result<Identity> {
        match self.idle.pop() {
            Some(identity) => Ok(identity),
            None => self.make(),
        }
    }

    /// How many are made and not in use.
    pub(crate) fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Makes one more before it is needed.
    pub(crate) fn make_ready(&mut self) -> io::Result<()> {
        let identity = self.make()?;
        self.idle.push(identity);
        Ok(())
    }

    fn make(&mut self) -> io::Result<Identity> {
        while self.made < RANGES_MAX {
            let first_id = FIRST_ID + self.made * IDS_EACH;
            self.made += 1;
            if !self.foreign.contains(&first_id) {
                return Ok(Identity { first_id, namespace: make(first_id)? });
            }
        }
        Err(io::Error::other("every range of user ids is in use"))
    }

    /// Takes back what [`Identities::take`] gave.
    pub(crate) fn give_back(&mut self, identity: Identity) {
        self.idle.push(identity);
    }
}

/// Makes a user namespace: a process enters it, its map is written, and only its handle stays.
///
/// The process does so as the first id of the range: what the kernel counts per user (watches,
/// queues, pending signals) then counts against the sandbox and not against root of the host.
fn make(first_id: u32) -> io::Result<OwnedFd> {
    let (waiting, release) = std::io::pipe()?;
    let (mut entered, tell) = std::io::pipe()?;
    match process::fork_into(0, None)? {
        Forked::Child => {
            drop((release, entered));
            let made = process::become_user(first_id)
                .and_then(|()| process::unshare(libc::CLONE_NEWUSER))
                .and_then(|()| { tell }.write_all(&[1]));
            if made.is_ok() {
                // Ends when the parent lets go of its end of the pipe, whatever happens to it.
                let _ended = io::copy(&mut { waiting }, &mut io::sink());
            }
            process::exit_now(0)
        }
        Forked::Parent(pid, pidfd) => {
            drop((waiting, tell));
            let made = entered
                .read_exact(&mut [0])
                .map_err(|_| io::Error::other("a user namespace could not be made"))
                .and_then(|()| describe(pid, first_id));
            drop(release);
            process::signal(pidfd.as_fd(), libc::SIGKILL)?;
            made
        }
    }
}

fn describe(pid: i32, first_id: u32) -> io::Result<OwnedFd> {
    let map = format!("0 {first_id} {IDS_EACH}\n");
    for file in ["uid_map", "gid_map"] {
        let path = format!("/proc/{pid}/{file}");
        File::options()
            .write(true)
            .open(&path)
            .and_then(|mut f| f.write_all(map.as_bytes()))
            .map_err(|e| io::Error::new(e.kind(), format!("writing {path}: {e}")))?;
    }
    File::open(format!("/proc/{pid}/ns/user")).map(Into::into)
}
