use super::{Permissions, change::make_parents, set_permissions};
use crate::{Error, Result, id};
use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// A file being received.
///
/// A new file appears under its name only when it is complete. An existing one is truncated and
/// filled in place, so that its owner, mode, links and mounts stay.
#[derive(Debug)]
pub struct Upload {
    path: PathBuf,
    partial: Option<PathBuf>,
    file: File,
}

impl Upload {
    /// Prepares to receive a file, making its parents.
    pub fn begin(path: &Path) -> Result<Self> {
        make_parents(path)?;
        match fs::metadata(path) {
            Ok(found) if !found.is_file() => {
                let problem = "is not a regular file; choose another path".to_owned();
                Err(Error::Unsuitable { path: path.to_owned(), problem })
            }
            Ok(_) => {
                let mut options = OpenOptions::new();
                let options = options.write(true).truncate(true).custom_flags(libc::O_NONBLOCK);
                let file = options.open(path).map_err(|error| Error::file("write", path, error))?;
                Ok(Self { path: path.to_owned(), partial: None, file })
            }
            Err(_) => Self::begin_new(path),
        }
    }

    fn begin_new(path: &Path) -> Result<Self> {
        let partial = path.with_file_name(format!(".atoll-upload-{}", id::fresh()));
        let opened = OpenOptions::new().write(true).create_new(true).open(&partial);
        let file = opened.map_err(|source| Error::File {
            action: "create",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { path: path.to_owned(), partial: Some(partial), file })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| Error::file("write", &self.path, error))
    }

    /// Completes the file.
    pub fn finish(mut self, permissions: &Permissions) -> Result<()> {
        if let Some(partial) = &self.partial {
            set_permissions(partial, permissions)?;
            fs::rename(partial, &self.path).map_err(|source| Error::File {
                action: "create",
                path: self.path.clone(),
                source,
            })?;
            self.partial = None;
            return Ok(());
        }
        set_permissions(&self.path, permissions)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // An upload that broke off leaves nothing behind.
            fs::remove_file(partial).ok();
        }
    }
}
