//! Unfinished files and directories, gone unless they are finished.

use crate::Error;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Makes a directory that only the server enters: images hold set-user-id programs, which other
/// users of this machine must not be able to run.
pub(crate) fn private_directory(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
        .map_err(|e| Error::io("(any)", "making directory", path, e))
}

/// Directory for unfinished work, emptied when the store opens.
#[derive(Debug, Clone)]
pub(crate) struct ScratchDir {
    path: PathBuf,
    next: Arc<AtomicU64>,
}

impl ScratchDir {
    /// Empties or makes the directory.
    pub(crate) fn open(path: PathBuf) -> Result<Self, Error> {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("(any)", "removing leftovers in", path, error));
            }
            _ => {}
        }
        private_directory(&path)?;
        Ok(Self { path, next: Arc::default() })
    }

    /// A fresh name; what is made there is removed when the value is dropped.
    pub(crate) fn reserve(&self, purpose: &str) -> Scratch {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Scratch { path: self.path.join(format!("{purpose}-{number}")) }
    }
}

/// A path that is removed, with all below it, on drop.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the finished work to `target`; keeps what is already there, which is the same.
    pub(crate) fn finish(self, image: &str, target: &Path) -> Result<(), Error> {
        match fs::rename(&self.path, target) {
            Err(_) if target.is_dir() => Ok(()),
            result => result.map_err(|e| Error::io(image, "moving into place", target, e)),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let removed = match fs::symlink_metadata(&self.path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&self.path),
            Ok(_) => fs::remove_file(&self.path),
            Err(_) => return,
        };
        if let Err(error) = removed {
            tracing::warn!(path = %self.path.display(), %error, "leftover stays until the next start");
        }
    }
}
