//! Owners, modes, times and extended attributes.

use rustix::{
    fd::{BorrowedFd, OwnedFd},
    fs::{self, AtFlags, Mode, Timespec, Timestamps, XattrFlags},
    io::Errno,
};

const OPAQUE_XATTR: &str = "trusted.overlay.opaque";
const XATTR_VALUE_LEN_MAX: usize = 64 * 1024;

/// What is set on every entry besides its content.
#[derive(Debug)]
pub(crate) struct Attributes<'a> {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: (i64, u32),
    pub(crate) xattrs: &'a [(String, Vec<u8>)],
}

/// Sets owner, mode, extended attributes and times of an open file or directory.
pub(crate) fn set_attributes(
    file: BorrowedFd<'_>,
    attributes: &Attributes<'_>,
) -> rustix::io::Result<()> {
    let (uid, gid) = owner(attributes);
    fs::fchown(file, Some(uid), Some(gid))?;
    // A change of owner clears set-id bits and capabilities, so these come after it.
    fs::fchmod(file, Mode::from_raw_mode(attributes.mode))?;
    for (name, value) in attributes.xattrs {
        let wanted = name == "security.capability"
            || (name.starts_with("user.") && !name.starts_with("user.overlay."));
        if wanted && value.len() <= XATTR_VALUE_LEN_MAX {
            match fs::fsetxattr(file, name.as_str(), value, XattrFlags::empty()) {
                // Attributes of users are a courtesy that not every file system extends.
                Err(Errno::NOTSUP) if name.starts_with("user.") => {}
                result => result?,
            }
        }
    }
    fs::futimens(file, &timestamps(attributes.mtime))
}

pub(super) fn set_owner(
    parent: &OwnedFd,
    name: &[u8],
    attributes: &Attributes<'_>,
) -> rustix::io::Result<()> {
    let (uid, gid) = owner(attributes);
    fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

fn owner(attributes: &Attributes<'_>) -> (fs::Uid, fs::Gid) {
    (fs::Uid::from_raw(attributes.uid), fs::Gid::from_raw(attributes.gid))
}

/// Hides what lower layers have in the directory.
pub(super) fn set_opaque(directory: BorrowedFd<'_>) -> rustix::io::Result<()> {
    fs::fsetxattr(directory, OPAQUE_XATTR, b"y", XattrFlags::empty())
}

pub(super) fn timestamps((seconds, nanos): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    Timestamps { last_access: time, last_modification: time }
}
