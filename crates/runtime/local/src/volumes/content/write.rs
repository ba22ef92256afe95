//! Writing a whole file into a volume.
//!
//! Its bytes are collected where no sandbox sees them and moved to their place in one step, so
//! that whoever reads finds the old file or the new one.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use atoll_control::{Ownership, VolumeEntry};
use atoll_core::{Error, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::place::Place;
use super::{FILE_MODE, Found};
use crate::config::Layout;
use crate::random;

/// A file on its way into a volume.
pub(in crate::volumes) struct Draft {
    place: Place,
    /// The folder it will be in.
    parent: OwnedFd,
    name: OsString,
    ownership: Ownership,
    force: bool,
    path: PathBuf,
}

impl Draft {
    /// Checks that the file could be written and opens a place for its bytes.
    pub(in crate::volumes) fn begin(
        layout: &Layout,
        root: &Path,
        path: &str,
        ownership: Ownership,
        force: bool,
    ) -> Result<(Self, File)> {
        let place = Place::parse(path)?;
        super::check(ownership)?;
        let root = super::open_root(root)?;
        let Some((parents, name)) = place.split() else {
            return Err(Error::invalid("path", "/ is the volume itself; name a file in it"));
        };
        let parent = if force {
            super::make_folders(root.as_fd(), parents)
        } else {
            super::open_folder(root.as_fd(), parents)
        };
        let parent = parent.map_err(place.failed("writing"))?;
        // Said again, and for certain, when it is moved to its place.
        if !force && Found::at(parent.as_fd(), name).is_ok() {
            return Err(place.exists());
        }
        let name = name.to_owned();
        let (path, file) = new_file(&layout.volume_drafts())
            .map_err(|error| Error::internal(format!("writing {place}: {error}")))?;
        Ok((Self { place, parent, name, ownership, force, path }, file))
    }

    /// Moves the file to its place once all bytes are in it.
    pub(in crate::volumes) fn finish(self, file: &File) -> Result<VolumeEntry> {
        let failed = || self.place.failed("writing");
        let found = Found(
            file.as_fd()
                .try_clone_to_owned()
                .map_err(|error| Error::internal(format!("writing {}: {error}", self.place)))?,
        );
        let mode = self.ownership.mode.or(Some(FILE_MODE));
        found.give(Ownership { mode, ..self.ownership }).map_err(failed())?;
        rustix::fs::fsync(file).map_err(failed())?;
        let flags = if self.force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        renameat_with(CWD, &self.path, &self.parent, &self.name, flags).map_err(failed())?;
        found.describe(&self.place)
    }

    /// How the failure to write a byte is told.
    pub(in crate::volumes) fn failed(&self, error: &std::io::Error) -> Error {
        match error.raw_os_error() {
            Some(code) => self.place.failed("writing")(Errno::from_raw_os_error(code)),
            None => Error::unavailable(format!("writing {}: {error}", self.place)),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // One that was moved to its place is not here any more.
        std::fs::remove_file(&self.path).ok();
    }
}

/// Removes what a crash interrupted, and makes the place of drafts.
pub(in crate::volumes) fn clear_drafts(layout: &Layout) -> std::io::Result<()> {
    let dir = layout.volume_drafts();
    std::fs::create_dir_all(&dir)?;
    for entry in std::fs::read_dir(&dir)? {
        std::fs::remove_file(entry?.path())?;
    }
    Ok(())
}

fn new_file(dir: &Path) -> std::io::Result<(PathBuf, File)> {
    let path = dir.join(random::hex(16)?);
    let file = File::options().write(true).create_new(true).open(&path)?;
    Ok((path, file))
}
