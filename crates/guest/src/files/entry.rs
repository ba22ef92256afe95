use super::{Attributes, ENTRIES_MAX, Kind, attributes, directory, kind_of, moment};
use crate::{Error, Result, accounts::Accounts};
use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// What is known about a path and, where it is a link, about what it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path as asked for.
    pub path: PathBuf,
    /// What it names, links followed; a link that leads nowhere is [`Kind::Other`].
    pub kind: Kind,
    /// Permission bits of that.
    pub mode: u32,
    /// Type and permission bits of the path itself, as the kernel has them.
    pub raw_mode: u32,
    /// Size in bytes of the path itself.
    pub size: u64,
    /// When the path itself last changed.
    pub modified_at: SystemTime,
    /// The owner's name, or number.
    pub owner: String,
    /// The group's name, or number.
    pub group: String,
    /// Where a link ends after all links on the way, or what it says when that does not exist.
    pub link_target: Option<PathBuf>,
    /// Texts kept with what it names.
    pub attributes: Attributes,
}

impl Entry {
    fn new(path: PathBuf, own: &Metadata, accounts: &Accounts, prefix: &str) -> Self {
        let target = own.is_symlink().then(|| fs::metadata(&path).ok());
        let seen = match &target {
            Some(target) => target.as_ref(),
            None => Some(own),
        };
        let kind = seen.map_or(Kind::Other, kind_of);
        let attributes = match kind {
            Kind::File | Kind::Directory => attributes(&path, prefix),
            Kind::Symlink | Kind::Other => Attributes::new(),
        };
        Self {
            kind,
            mode: seen.unwrap_or(own).mode() & 0o777,
            raw_mode: own.mode(),
            size: own.size(),
            modified_at: moment(own.mtime(), own.mtime_nsec()),
            owner: accounts.user_name(own.uid()),
            group: accounts.group_name(own.gid()),
            link_target: target.is_some().then(|| end_of_link(&path)),
            attributes,
            path,
        }
    }

    /// Whether the path itself is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.link_target.is_some()
    }
}

fn end_of_link(path: &Path) -> PathBuf {
    let says = || {
        let parent = path.parent().unwrap_or(Path::new("/"));
        fs::read_link(path).map_or_else(|_| path.to_owned(), |target| parent.join(target))
    };
    fs::canonicalize(path).unwrap_or_else(|_| says())
}

/// Looks at one path. Texts whose attribute names begin with `prefix` are read with it.
pub fn entry(path: &Path, prefix: &str) -> Result<Entry> {
    let found = fs::symlink_metadata(path).map_err(|error| Error::file("look at", path, error))?;
    Ok(Entry::new(path.to_owned(), &found, &Accounts::load(), prefix))
}

/// The entries below a directory down to `depth` levels, parents before children, names in lexical
/// order. A link as the root is followed, but the paths begin as asked.
pub fn entries(root: &Path, depth: usize, prefix: &str) -> Result<Vec<Entry>> {
    let found = fs::metadata(root).map_err(|error| Error::file("list", root, error))?;
    if !found.is_dir() {
        let problem = "is not a directory; name one".to_owned();
        return Err(Error::Unsuitable { path: root.to_owned(), problem });
    }
    let (accounts, mut entries) = (Accounts::load(), Vec::new());
    directory::walk(root, depth, &mut |path, found| {
        entries.push(Entry::new(path, found, &accounts, prefix));
        match entries.len() > ENTRIES_MAX {
            true => Err(directory::too_many(root, ENTRIES_MAX)),
            false => Ok(()),
        }
    })?;
    Ok(entries)
}
