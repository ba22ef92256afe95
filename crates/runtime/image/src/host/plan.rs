//! What a skeleton consists of, decided before anything is written.

use crate::{Error, digest::Digest};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::Write as _,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
};

const ITEMS_MAX: usize = 20_000;
const COPIED_BYTES_MAX: u64 = 64 << 20;

/// Something at a path of the skeleton.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    Directory {
        mode: u32,
        owner: (u32, u32),
    },
    Text {
        content: String,
        mode: u32,
        owner: (u32, u32),
    },
    Link(PathBuf),
    /// A file of the host; its size and time stand for its content in the version.
    Copy {
        from: PathBuf,
        mode: u32,
        owner: (u32, u32),
        size: u64,
        modified: (i64, i64),
    },
}

/// Items by path relative to the skeleton; parents sort before their children.
#[derive(Debug)]
pub(super) struct Plan {
    version: u32,
    items: BTreeMap<PathBuf, Item>,
    copied_bytes: u64,
}

impl Plan {
    pub(super) fn new(version: u32) -> Self {
        Self { version, items: BTreeMap::new(), copied_bytes: 0 }
    }

    pub(super) fn add(&mut self, path: impl Into<PathBuf>, item: Item) {
        self.items.insert(path.into(), item);
    }

    /// Plans a copy of a host path with all below it. Missing paths, files that not everyone may
    /// read and anything but files, directories and links are left out.
    pub(super) fn copy(&mut self, from: &Path, to: &Path, owner: (u32, u32)) -> Result<(), Error> {
        let Ok(found) = fs::symlink_metadata(from) else { return Ok(()) };
        let mode = found.mode() & 0o777;
        if self.items.len() >= ITEMS_MAX || self.copied_bytes > COPIED_BYTES_MAX {
            let reason = format!("{} and its like are too large to copy", from.display());
            return Err(Error::HostUnsupported { reason });
        }
        if found.is_symlink() {
            if let Ok(target) = fs::read_link(from) {
                self.add(to, Item::Link(target));
            }
        } else if found.is_dir() && mode & 0o005 == 0o005 {
            self.add(to, Item::Directory { mode, owner });
            let Ok(children) = fs::read_dir(from) else { return Ok(()) };
            for child in children.flatten() {
                self.copy(&child.path(), &to.join(child.file_name()), owner)?;
            }
        } else if found.is_file() && mode & 0o004 != 0 {
            self.copied_bytes += found.len();
            let modified = (found.mtime(), found.mtime_nsec());
            let item = Item::Copy { from: from.into(), mode, owner, size: found.len(), modified };
            self.add(to, item);
        }
        Ok(())
    }

    /// A name for exactly this skeleton.
    pub(super) fn version(&self) -> String {
        let mut text = format!("{}\n", self.version);
        for (path, item) in &self.items {
            writeln!(text, "{path:?} {item:?}").expect("writing to a string cannot fail");
        }
        Digest::of(text.as_bytes()).hex()[..16].to_owned()
    }

    /// Writes the skeleton into a new directory.
    pub(super) fn carry_out(&self, into: &Path) -> Result<(), Error> {
        let failed = |path: &Path, e| Error::io("host", "making", path, e);
        fs::create_dir(into).map_err(|e| failed(into, e))?;
        fs::set_permissions(into, fs::Permissions::from_mode(0o755))
            .map_err(|e| failed(into, e))?;
        for (path, item) in &self.items {
            let path = into.join(path);
            item.make(&path).map_err(|e| failed(&path, e))?;
        }
        let directory = File::open(into).map_err(|e| failed(into, e))?;
        rustix::fs::syncfs(&directory).map_err(|e| failed(into, e.into()))
    }

    #[cfg(test)]
    pub(super) fn items(&self) -> &BTreeMap<PathBuf, Item> {
        &self.items
    }
}

impl Item {
    fn make(&self, path: &Path) -> std::io::Result<()> {
        let (mode, owner) = match self {
            Self::Link(target) => return symlink(target, path),
            Self::Directory { mode, owner } => {
                fs::create_dir(path)?;
                (mode, owner)
            }
            Self::Text { content, mode, owner } => {
                File::create_new(path)?.write_all(content.as_bytes())?;
                (mode, owner)
            }
            Self::Copy { from, mode, owner, .. } => {
                std::io::copy(&mut File::open(from)?, &mut File::create_new(path)?)?;
                (mode, owner)
            }
        };
        chown(path, Some(owner.0), Some(owner.1))?;
        fs::set_permissions(path, fs::Permissions::from_mode(*mode))
    }
}
