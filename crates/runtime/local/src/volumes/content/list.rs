//! What is below a folder of a volume.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use atoll_control::{EntryKind, VolumeEntry};
use atoll_core::{Error, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, readlinkat, statat};
use rustix::io::Errno;

use super::place::Place;

/// Entries of one listing.
const ENTRIES_MAX: usize = 10_000;
/// Levels of one listing; each has an open folder on the way.
const DEPTH_MAX: u32 = 64;

/// What is below `path`, by name, `depth` levels deep. Links are listed, not followed.
pub(in crate::volumes) fn entries(root: &Path, path: &str, depth: u32) -> Result<Vec<VolumeEntry>> {
    if depth == 0 || depth > DEPTH_MAX {
        return Err(Error::invalid("depth", format!("use a number from 1 to {DEPTH_MAX}")));
    }
    let place = Place::parse(path)?;
    let root = super::open_root(root)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let folder = match super::resolve(root.as_fd(), place.parts(), flags) {
        Err(Errno::NOTDIR) => {
            let problem = format!("{place} is not a folder; name a folder");
            return Err(Error::invalid("path", problem).with_reason("NOT_A_FOLDER"));
        }
        other => other.map_err(place.failed("listing"))?,
    };
    let mut found = Vec::new();
    list(folder, &place, depth, &mut found)?;
    Ok(found)
}

fn list(folder: OwnedFd, place: &Place, depth: u32, found: &mut Vec<VolumeEntry>) -> Result<()> {
    let names = names(&folder, ENTRIES_MAX.saturating_sub(found.len()) + 1);
    for name in names.map_err(place.failed("listing"))? {
        if found.len() >= ENTRIES_MAX {
            let problem = format!(
                "{place} has more than {ENTRIES_MAX} entries; list less deep, or a folder in it"
            );
            return Err(Error::invalid("path", problem).with_reason("TOO_MANY_ENTRIES"));
        }
        let below = place.below(&name);
        match describe(folder.as_fd(), &name, &below) {
            Ok(entry) => {
                let is_folder = entry.kind == EntryKind::Directory;
                found.push(entry);
                if is_folder && depth > 1 {
                    match enter(folder.as_fd(), &name) {
                        Ok(folder) => list(folder, &below, depth - 1, found)?,
                        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                        Err(error) => return Err(below.failed("listing")(error)),
                    }
                }
            }
            // Removed since its name was read.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(below.failed("listing")(error)),
        }
    }
    Ok(())
}

/// Names in a folder, sorted; at most `max` are read.
fn names(folder: &OwnedFd, max: usize) -> rustix::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        names.push(OsStr::from_bytes(name).to_owned());
        if names.len() >= max {
            break;
        }
    }
    names.sort();
    Ok(names)
}

fn describe(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    below: &Place,
) -> rustix::io::Result<VolumeEntry> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let target = match FileType::from_raw_mode(stat.st_mode) {
        // One that was replaced meanwhile is no link any more.
        FileType::Symlink => readlinkat(folder, name, Vec::new()).ok(),
        _ => None,
    };
    Ok(super::describe(below.name(), below.to_string(), &stat, target))
}

/// Opens a folder by its name alone; a link put in its place is not followed.
fn enter(folder: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(folder, name, flags, Mode::empty(), resolve)
}
