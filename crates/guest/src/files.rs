//! Files and directories of the sandbox. Every function blocks: run it through
//! [`Guest::file_operation`](crate::Guest::file_operation).

mod attributes;
mod change;
mod directory;
mod entry;
mod glob;
mod place;
mod read;
mod replace;
mod write;

pub use attributes::{Attributes, attributes};
pub use change::{
    Permissions, mode_from_digits, mode_to_digits, remove_file, rename, set_permissions,
};
pub use directory::{list, make_directory, remove_directory, search};
pub use entry::{Entry, entries, entry};
pub use glob::Pattern;
pub use place::{Incoming, join, make_directory_for, move_over};
pub use read::{Download, lines, open};
pub use replace::replace;
pub use write::{Staged, Upload};

use crate::{Error, Result, accounts::Accounts};
use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Entries that one answer may hold.
const ENTRIES_MAX: usize = 100_000;

/// What kind of thing a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, not followed.
    Symlink,
    /// A pipe, socket or device.
    Other,
}

/// What is known about a path, links not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// The path.
    pub path: PathBuf,
    /// What it names.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
    /// When its content last changed.
    pub modified_at: SystemTime,
    /// When its inode last changed, the nearest thing to creation that every file system has.
    pub created_at: SystemTime,
    /// The owner's name, or number.
    pub owner: String,
    /// The group's name, or number.
    pub group: String,
    /// Permission bits.
    pub mode: u32,
}

impl Info {
    fn new(path: PathBuf, found: &Metadata, accounts: &Accounts) -> Self {
        Self {
            path,
            kind: kind_of(found),
            size: found.size(),
            modified_at: moment(found.mtime(), found.mtime_nsec()),
            created_at: moment(found.ctime(), found.ctime_nsec()),
            owner: accounts.user_name(found.uid()),
            group: accounts.group_name(found.gid()),
            mode: found.mode() & 0o7777,
        }
    }
}

fn kind_of(found: &Metadata) -> Kind {
    match found.file_type() {
        kind if kind.is_symlink() => Kind::Symlink,
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_file() => Kind::File,
        _ => Kind::Other,
    }
}

/// Looks at one path.
pub fn info(path: &Path, accounts: &Accounts) -> Result<Info> {
    let found = fs::symlink_metadata(path).map_err(|error| Error::file("look at", path, error))?;
    Ok(Info::new(path.to_owned(), &found, accounts))
}

fn moment(seconds: i64, nanoseconds: i64) -> SystemTime {
    let nanoseconds = Duration::from_nanos(nanoseconds.unsigned_abs());
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    base.and_then(|base| base.checked_add(nanoseconds)).unwrap_or(SystemTime::UNIX_EPOCH)
}
