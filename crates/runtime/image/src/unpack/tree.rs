//! A directory tree built from untrusted names: every path is resolved by the kernel with the tree
//! as its root, and the last component is never followed.

mod attributes;
mod remove;

pub(crate) use attributes::{Attributes, set_attributes};
use attributes::{set_opaque, set_owner, timestamps};
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};
use std::{io, path::Path, rc::Rc};

const PATH_LEN_MAX: usize = 4095;
const NAME_LEN_MAX: usize = 255;
/// Bounds the descriptors and stack needed to remove a tree again.
const DEPTH_MAX: usize = 128;

/// Why an entry was not made.
#[derive(Debug)]
pub(crate) enum TreeError {
    Refused(&'static str),
    Io(io::Error),
}

impl From<Errno> for TreeError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// The tree under construction.
pub(crate) struct Tree {
    root: Rc<OwnedFd>,
    /// The parent used last; entries of one directory come together.
    parent: Option<(Vec<u8>, Rc<OwnedFd>)>,
    /// Set at the end, since every new entry changes its directory's time.
    directory_times: Vec<(Vec<u8>, (i64, u32))>,
}

/// Splits a path of an archive into names; absolute paths are taken from the tree's root.
pub(crate) fn components(path: &[u8]) -> Result<Vec<&[u8]>, TreeError> {
    if path.len() > PATH_LEN_MAX {
        return Err(TreeError::Refused("its path is too long"));
    }
    if path.contains(&0) {
        return Err(TreeError::Refused("its path contains a zero byte"));
    }
    let names: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    if names.contains(&b"..".as_slice()) {
        return Err(TreeError::Refused("its path contains '..'"));
    }
    if names.len() > DEPTH_MAX || names.iter().any(|name| name.len() > NAME_LEN_MAX) {
        return Err(TreeError::Refused("its path is too deep or has a name that is too long"));
    }
    Ok(names)
}

impl Tree {
    /// Makes the root directory, owned by root with mode 0755.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        fs::mkdir(path, Mode::from_raw_mode(0o755))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty())?;
        // The process's umask may have taken bits away.
        fs::fchmod(&root, Mode::from_raw_mode(0o755))?;
        Ok(Self { root: Rc::new(root), parent: None, directory_times: Vec::new() })
    }

    /// Sets what was deferred and waits until everything is on disk.
    pub(crate) fn finish(self) -> io::Result<()> {
        for (path, mtime) in &self.directory_times {
            // A later entry may have replaced the directory.
            if let Ok(directory) = self.open_directory(path) {
                fs::futimens(&directory, &timestamps(*mtime))?;
            }
        }
        Ok(fs::syncfs(&self.root)?)
    }

    pub(crate) fn set_root(&mut self, attributes: &Attributes<'_>) -> Result<(), TreeError> {
        self.directory_times.push((b".".to_vec(), attributes.mtime));
        Ok(set_attributes(self.root.as_fd(), attributes)?)
    }

    /// A new, empty regular file; replaces what was there.
    pub(crate) fn file(&mut self, parents: &[&[u8]], name: &[u8]) -> Result<OwnedFd, TreeError> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.replacing(parents, name, |parent| {
            fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))
        })
    }

    pub(crate) fn directory(
        &mut self,
        parents: &[&[u8]],
        name: &[u8],
        attributes: &Attributes<'_>,
    ) -> Result<(), TreeError> {
        let parent = self.parent(parents)?;
        match stat(&parent, name)? {
            Some(found) if is_directory(&found) => {}
            Some(found) => {
                self.parent = None;
                remove::entry(&parent, name)?;
                fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
                if is_whiteout(&found) {
                    set_opaque(open_here(&parent, name)?.as_fd())?;
                }
            }
            None => fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?,
        }
        self.directory_times.push((join(parents, name), attributes.mtime));
        Ok(set_attributes(open_here(&parent, name)?.as_fd(), attributes)?)
    }

    pub(crate) fn symlink(
        &mut self,
        parents: &[&[u8]],
        name: &[u8],
        target: &[u8],
        attributes: &Attributes<'_>,
    ) -> Result<(), TreeError> {
        if target.is_empty() || target.len() > PATH_LEN_MAX || target.contains(&0) {
            return Err(TreeError::Refused("its link target is empty, too long or not a path"));
        }
        let parent = self.parent(parents)?;
        self.replacing(parents, name, |parent| fs::symlinkat(target, parent, name))?;
        set_owner(&parent, name, attributes)?;
        let times = timestamps(attributes.mtime);
        Ok(fs::utimensat(&parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// A second name for an entry of this tree.
    pub(crate) fn hardlink(
        &mut self,
        parents: &[&[u8]],
        name: &[u8],
        target: &[u8],
    ) -> Result<(), TreeError> {
        const MISSING: TreeError =
            TreeError::Refused("it is a hard link to a file that is not in this layer");
        let target = components(target)?;
        let Some((target_name, target_parents)) = target.split_last() else { return Err(MISSING) };
        let from = match self.open_directory(&target_parents.join(&b'/')) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(MISSING),
            Err(error) => return Err(error.into()),
        };
        match stat(&from, target_name)? {
            Some(found) if is_directory(&found) => {
                return Err(TreeError::Refused("it is a hard link to a directory"));
            }
            Some(_) => {}
            None => return Err(MISSING),
        }
        let linked = self.replacing(parents, name, |parent| {
            match fs::linkat(&from, *target_name, parent, name, AtFlags::empty()) {
                Err(Errno::EXIST) if same_file(&from, target_name, parent, name) => Ok(()),
                result => result,
            }
        });
        match linked {
            Err(TreeError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Err(MISSING),
            result => result,
        }
    }

    pub(crate) fn fifo(
        &mut self,
        parents: &[&[u8]],
        name: &[u8],
        attributes: &Attributes<'_>,
    ) -> Result<(), TreeError> {
        let parent = self.parent(parents)?;
        let mode = Mode::from_raw_mode(attributes.mode);
        self.replacing(parents, name, |parent| fs::mknodat(parent, name, FileType::Fifo, mode, 0))?;
        set_owner(&parent, name, attributes)?;
        // Nobody else writes here, so the name is still the fifo just made.
        fs::chmodat(&parent, name, mode, AtFlags::empty())?;
        let times = timestamps(attributes.mtime);
        Ok(fs::utimensat(&parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Hides everything lower layers have in a directory.
    pub(crate) fn make_opaque(&mut self, path: &[&[u8]]) -> Result<(), TreeError> {
        let directory = self.parent(path)?;
        Ok(set_opaque(directory.as_fd())?)
    }

    /// Hides an entry of lower layers, but none of this layer.
    pub(crate) fn hide(&mut self, parents: &[&[u8]], name: &[u8]) -> Result<(), TreeError> {
        let parent = self.parent(parents)?;
        match stat(&parent, name)? {
            Some(found) if is_directory(&found) => {
                Ok(set_opaque(open_here(&parent, name)?.as_fd())?)
            }
            Some(_) => Ok(()),
            None => {
                let mode = Mode::from_raw_mode(0o600);
                Ok(fs::mknodat(&parent, name, FileType::CharacterDevice, mode, 0)?)
            }
        }
    }

    /// Runs `make`, once more after removing what is in its way.
    fn replacing<T>(
        &mut self,
        parents: &[&[u8]],
        name: &[u8],
        make: impl Fn(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> Result<T, TreeError> {
        let parent = self.parent(parents)?;
        match make(parent.as_fd().as_fd()) {
            Err(Errno::EXIST) => {
                self.parent = None;
                remove::entry(&parent, name)?;
                Ok(make(parent.as_fd().as_fd())?)
            }
            result => Ok(result?),
        }
    }

    /// Opens a directory for entries to be made in, making what is missing of it.
    fn parent(&mut self, path: &[&[u8]]) -> Result<Rc<OwnedFd>, TreeError> {
        let joined = path.join(&b'/');
        if let Some((known, directory)) = &self.parent
            && *known == joined
        {
            return Ok(Rc::clone(directory));
        }
        let directory = Rc::new(self.ensure_directory(path)?);
        self.parent = Some((joined, Rc::clone(&directory)));
        Ok(directory)
    }

    fn ensure_directory(&self, path: &[&[u8]]) -> Result<OwnedFd, TreeError> {
        let joined = path.join(&b'/');
        match self.open_directory(&joined) {
            Ok(directory) => return Ok(directory),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(Errno::LOOP) => {
                return Err(TreeError::Refused("its path leads through too many links"));
            }
            Err(error) => return Err(error.into()),
        }
        let (name, parents) = path.split_last().ok_or(Errno::NOENT)?;
        let parent = self.ensure_directory(parents)?;
        let hidden = match stat(&parent, name)? {
            None => false,
            Some(found) if is_whiteout(&found) => {
                remove::entry(&parent, name)?;
                true
            }
            Some(_) => {
                return Err(TreeError::Refused("its path leads through something not a directory"));
            }
        };
        fs::mkdirat(&parent, *name, Mode::from_raw_mode(0o755))?;
        let directory = open_here(&parent, name)?;
        fs::fchmod(&directory, Mode::from_raw_mode(0o755))?;
        if hidden {
            set_opaque(directory.as_fd())?;
        }
        Ok(directory)
    }

    /// Opens a directory; links of this tree are followed as if the tree were `/`.
    fn open_directory(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let path = if path.is_empty() { b".".as_slice() } else { path };
        let open = |resolve| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let resolve = resolve | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
            fs::openat2(&self.root, path, flags, Mode::empty(), resolve)
        };
        match open(ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => {
                let directory = open(ResolveFlags::IN_ROOT)?;
                // Links could nest directories deeper than any single path allows.
                if depth(&directory)? > depth(&self.root)? + DEPTH_MAX {
                    return Err(Errno::LOOP);
                }
                Ok(directory)
            }
            result => result,
        }
    }
}

/// Number of directories above an open one.
fn depth(directory: &OwnedFd) -> rustix::io::Result<usize> {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let path = fs::readlink(link, Vec::new())?;
    Ok(path.to_bytes().iter().filter(|byte| **byte == b'/').count())
}

fn stat(parent: &OwnedFd, name: &[u8]) -> Result<Option<Stat>, TreeError> {
    match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn same_file(from: &OwnedFd, target: &[u8], parent: BorrowedFd<'_>, name: &[u8]) -> bool {
    let of = |directory, name: &[u8]| {
        fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|s| (s.st_dev, s.st_ino))
    };
    matches!((of(from.as_fd(), target), of(parent, name)), (Ok(a), Ok(b)) if a == b)
}

fn is_directory(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Directory
}

fn is_whiteout(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice && found.st_rdev == 0
}

fn open_here(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(parent, name, flags, Mode::empty())
}

fn join(parents: &[&[u8]], name: &[u8]) -> Vec<u8> {
    let mut path = parents.join(&b'/');
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
