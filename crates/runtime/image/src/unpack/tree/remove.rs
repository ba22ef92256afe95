//! Removal by name below an open directory, following nothing.

use super::open_here;
use rustix::{
    fd::OwnedFd,
    fs::{self, AtFlags, Dir},
    io::Errno,
};

/// Removes an entry, with everything in it when it is a directory.
pub(super) fn entry(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        result => return result,
    }
    let directory = open_here(parent, name)?;
    let children: Vec<_> = Dir::read_from(&directory)?.collect::<rustix::io::Result<_>>()?;
    for child in children {
        match child.file_name().to_bytes() {
            b"." | b".." => {}
            child => entry(&directory, child)?,
        }
    }
    fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}
