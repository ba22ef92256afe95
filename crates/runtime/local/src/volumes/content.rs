//! What is in a volume, seen and changed from outside while sandboxes change it too.
//!
//! A sandbox may put any link anywhere at any moment. So a path is never given to the kernel from
//! the host's root: it is resolved with the volume's folder as `/`, once, and what was found is
//! then used by descriptor. Files have the ids that sandboxes see: mounts map them, the disk
//! doesn't.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use atoll_control::{EntryKind, Ownership, VolumeEntry};
use atoll_core::{Error, ErrorKind, Result, Timestamp};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RawMode, ResolveFlags, Stat, Uid, chownat, mkdirat,
    openat2, readlinkat, statat,
};
use rustix::io::Errno;

use place::Place;

mod list;
mod place;
#[cfg(test)]
mod tests;
mod write;

pub(super) use list::entries;
pub(super) use write::{Draft, clear_drafts};

/// Ids that a sandbox knows; a larger one would belong to nobody there.
const ID_MAX: u32 = 65_535;
const FILE_MODE: RawMode = 0o644;
const FOLDER_MODE: RawMode = 0o755;
const MODE_BITS: RawMode = 0o7777;
/// Tries of a lookup that somebody's renames disturb.
const LOOKUPS_MAX: usize = 64;

/// What is at `path`; a link itself, not what it leads to.
pub(super) fn entry(root: &Path, path: &str) -> Result<VolumeEntry> {
    let place = Place::parse(path)?;
    let root = open_root(root)?;
    let found = locate(root.as_fd(), &place)?;
    found.describe(&place)
}

/// Changes owner and mode of what is at `path`.
pub(super) fn change(root: &Path, path: &str, ownership: Ownership) -> Result<VolumeEntry> {
    let place = Place::parse(path)?;
    check(ownership)?;
    let root = open_root(root)?;
    let found = locate(root.as_fd(), &place)?;
    found.give(ownership).map_err(place.failed("changing"))?;
    found.describe(&place)
}

/// Makes a folder; with `force` its parents too, and one that is there is fine.
pub(super) fn make_directory(
    root: &Path,
    path: &str,
    ownership: Ownership,
    force: bool,
) -> Result<VolumeEntry> {
    let place = Place::parse(path)?;
    check(ownership)?;
    let root = open_root(root)?;
    let Some((parents, name)) = place.split() else {
        return if force { entry_of_root(&root, &place) } else { Err(place.exists()) };
    };
    let parent = if force {
        make_folders(root.as_fd(), parents).map_err(place.failed("making"))?
    } else {
        open_folder(root.as_fd(), parents).map_err(place.failed("making"))?
    };
    match mkdirat(&parent, name, Mode::from_raw_mode(FOLDER_MODE)) {
        Ok(()) => {
            let found = Found::at(parent.as_fd(), name).map_err(place.failed("making"))?;
            let mode = ownership.mode.or(Some(FOLDER_MODE));
            found.give(Ownership { mode, ..ownership }).map_err(place.failed("making"))?;
            found.describe(&place)
        }
        Err(Errno::EXIST) if force => {
            open_folder(parent.as_fd(), &[name.to_owned()]).map_err(|_| place.exists())?;
            locate(root.as_fd(), &place)?.describe(&place)
        }
        Err(error) => Err(place.failed("making")(error)),
    }
}

/// Opens a file to read, and its size.
pub(super) fn open_file(root: &Path, path: &str) -> Result<(std::fs::File, u64)> {
    let place = Place::parse(path)?;
    let root = open_root(root)?;
    let failed = || place.failed("reading");
    // First only its location: opening a pipe or a device for real could wait or do something.
    let found = resolve(root.as_fd(), place.parts(), OFlags::PATH).map_err(failed())?;
    let stat = rustix::fs::fstat(&found).map_err(failed())?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        let problem = format!("{place} is not a file; name a file");
        return Err(Error::invalid("path", problem).with_reason("NOT_A_FILE"));
    }
    let file = std::fs::File::open(descriptor_path(found.as_fd()));
    let file = file.map_err(|error| Error::internal(format!("reading {place}: {error}")))?;
    Ok((file, u64::try_from(stat.st_size).unwrap_or(0)))
}

/// The folder of what is to be removed and its name there. The volume itself is refused.
pub(super) fn to_remove(root: &Path, path: &str) -> Result<(OwnedFd, std::ffi::OsString, Place)> {
    let place = Place::parse(path)?;
    let root = open_root(root)?;
    let Some((parents, name)) = place.split() else {
        let problem = "/ is the volume itself; remove the volume instead";
        return Err(Error::invalid("path", problem));
    };
    let parent = open_folder(root.as_fd(), parents).map_err(place.failed("removing"))?;
    let name = name.to_owned();
    Ok((parent, name, place))
}

/// Refuses owners and modes that make no sense inside.
fn check(ownership: Ownership) -> Result<()> {
    for (field, id) in [("uid", ownership.uid), ("gid", ownership.gid)] {
        if id.is_some_and(|id| id > ID_MAX) {
            return Err(Error::invalid(field, format!("use a number from 0 to {ID_MAX}")));
        }
    }
    if ownership.mode.is_some_and(|mode| mode > MODE_BITS) {
        return Err(Error::invalid("mode", "use permission bits, at most 0o7777"));
    }
    Ok(())
}

/// Something in a volume, by its own descriptor.
struct Found(OwnedFd);

impl Found {
    /// What is called `name` in `parent`, a link itself too.
    fn at(parent: BorrowedFd<'_>, name: &std::ffi::OsStr) -> rustix::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name, flags, Mode::empty()).map(Self)
    }

    fn give(&self, ownership: Ownership) -> rustix::io::Result<()> {
        let (uid, gid) = (ownership.uid.map(Uid::from_raw), ownership.gid.map(Gid::from_raw));
        if uid.is_some() || gid.is_some() {
            chownat(&self.0, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        let is_link = || -> rustix::io::Result<bool> {
            let stat = rustix::fs::fstat(&self.0)?;
            Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
        };
        // After the owner, since a change of owner clears some bits. Links have no mode.
        match ownership.mode {
            Some(mode) if !is_link()? => {
                rustix::fs::chmod(descriptor_path(self.0.as_fd()), Mode::from_raw_mode(mode))
            }
            _ => Ok(()),
        }
    }

    fn describe(&self, place: &Place) -> Result<VolumeEntry> {
        let described = statat(&self.0, "", AtFlags::EMPTY_PATH).and_then(|stat| {
            let target = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => Some(readlinkat(&self.0, "", Vec::new())?),
                _ => None,
            };
            Ok(describe(place.name(), place.to_string(), &stat, target))
        });
        described.map_err(place.failed("looking at"))
    }
}

fn describe(
    name: String,
    path: String,
    stat: &Stat,
    target: Option<std::ffi::CString>,
) -> VolumeEntry {
    let time = |seconds: i64, nanos: u64| {
        let micros = i64::try_from(nanos / 1000).unwrap_or(0);
        Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros))
    };
    VolumeEntry {
        name,
        path,
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Symlink,
            _ => EntryKind::Other,
        },
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & MODE_BITS,
        uid: stat.st_uid,
        gid: stat.st_gid,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        target: target.map(|target| target.to_string_lossy().into_owned()),
    }
}

fn entry_of_root(root: &OwnedFd, place: &Place) -> Result<VolumeEntry> {
    locate(root.as_fd(), place)?.describe(place)
}

/// Only this server names a volume's folder, so its own path is safe.
fn open_root(root: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(root, flags, Mode::empty());
    opened.map_err(|error| match error {
        Errno::NOENT => Error::not_found("the volume"),
        error => Error::internal(format!("opening a volume: {error}")),
    })
}

/// Finds what is at `place`; a link at its end is found itself.
fn locate(root: BorrowedFd<'_>, place: &Place) -> Result<Found> {
    let found = match place.split() {
        None => resolve(root, &[], OFlags::PATH).map(Found),
        Some((parents, name)) => {
            open_folder(root, parents).and_then(|parent| Found::at(parent.as_fd(), name))
        }
    };
    found.map_err(place.failed("looking at"))
}

fn open_folder(root: BorrowedFd<'_>, parts: &[std::ffi::OsString]) -> rustix::io::Result<OwnedFd> {
    resolve(root, parts, OFlags::PATH | OFlags::DIRECTORY)
}

/// Opens what the path leads to, links included, with `root` as `/`.
fn resolve(
    root: BorrowedFd<'_>,
    parts: &[std::ffi::OsString],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let path: std::path::PathBuf =
        Path::new("/").join(parts.iter().collect::<std::path::PathBuf>());
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    for _ in 0..LOOKUPS_MAX {
        match openat2(root, &path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            // Somebody renamed something meanwhile, and the kernel can't tell where it led.
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a folder, making it and its parents where they aren't.
fn make_folders(root: BorrowedFd<'_>, parts: &[std::ffi::OsString]) -> rustix::io::Result<OwnedFd> {
    let mut here = resolve(root, &[], OFlags::PATH | OFlags::DIRECTORY)?;
    for depth in 0..parts.len() {
        let walked = &parts[..=depth];
        here = match open_folder(root, walked) {
            Err(Errno::NOENT) => {
                match mkdirat(&here, &parts[depth], Mode::from_raw_mode(FOLDER_MODE)) {
                    // Another request may have been faster; a dangling link shows below.
                    Ok(()) | Err(Errno::EXIST) => open_folder(root, walked)?,
                    Err(error) => return Err(error),
                }
            }
            other => other?,
        };
    }
    Ok(here)
}

/// A path to what a descriptor refers to, whatever has become of its name.
fn descriptor_path(fd: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// An error of the kernel in words about `what`.
fn explain(doing: &str, what: &Place, error: Errno) -> Error {
    let message = || format!("{doing} {what}: {}", io::Error::from(error));
    match error {
        Errno::NOENT | Errno::NOTDIR => Error::not_found(format!("path {what}")),
        Errno::EXIST | Errno::ISDIR | Errno::NOTEMPTY => what.exists(),
        Errno::LOOP | Errno::XDEV => {
            Error::invalid("path", format!("{what} leads through a link that leads nowhere"))
        }
        Errno::NAMETOOLONG => Error::invalid("path", format!("{what} is too long")),
        Errno::NOSPC | Errno::DQUOT => {
            Error::new(ErrorKind::Exhausted, message()).with_reason("DISK_FULL")
        }
        Errno::AGAIN => Error::unavailable(message()),
        _ => Error::internal(message()),
    }
}
