//! Deleting a tree that a stranger laid out.
//!
//! It may be deeper than any stack or table of open files, longer than any path, full of links to
//! elsewhere, and somebody may still change it. So every step is by descriptor and name, never by
//! path; links and other mounts are not entered; and a folder that is too deep is renamed up into
//! the trash, where it is not deep any more.

use std::ffi::{CStr, CString};
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, renameat, unlinkat};
use rustix::io::{Errno, Result};

use super::{next_number, numbered};

/// Folders open at the same time.
const DEPTH_MAX: usize = 64;
/// What folders that were too deep are called in the trash.
const DEEP: &str = "deep";

/// How far the deletion of one tree has come.
pub(super) struct Removal {
    label: String,
    target: Target,
    /// Numbers of the folders moved up and not yet deleted; others may have used some of them.
    deep: Range<u64>,
    /// What went wrong first.
    failure: Option<Errno>,
}

enum Target {
    /// All that is in the trash.
    Everything,
    /// The tree of this name.
    Tree(CString),
    /// Nothing but what was moved up.
    Done,
}

struct Walk<'a> {
    root: BorrowedFd<'a>,
    deep: &'a mut Range<u64>,
    failure: &'a mut Option<Errno>,
    /// Entries that may still be deleted in this turn.
    left: u64,
}

/// An open folder.
struct Level {
    dir: Dir,
    /// Its name in the folder above; the trash itself has none.
    name: Option<CString>,
    /// Something was deleted since reading began, so that another look may find more.
    progress: bool,
}

impl Removal {
    /// Of the tree of this name in the trash.
    pub(super) fn of(name: CString) -> Self {
        let label = name.to_string_lossy().into_owned();
        Self { label, target: Target::Tree(name), deep: 0..0, failure: None }
    }

    /// Of all that is in the trash.
    pub(super) fn of_everything() -> Self {
        Self { label: "*".into(), target: Target::Everything, deep: 0..0, failure: None }
    }

    /// What is deleted, for a reader.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// What went wrong first.
    pub(super) fn failure(&self) -> Option<Errno> {
        self.failure
    }

    /// Remembers the first failure.
    pub(super) fn note(&mut self, error: Errno) {
        self.failure.get_or_insert(error);
    }

    /// Deletes about `entries_max` entries; whether nothing is left to do. What can't be deleted
    /// is noted and stays.
    pub(super) fn turn(&mut self, root: BorrowedFd<'_>, entries_max: u64) -> bool {
        let mut walk =
            Walk { root, deep: &mut self.deep, failure: &mut self.failure, left: entries_max };
        let finished = match &self.target {
            Target::Everything => walk.everything(),
            Target::Tree(name) => walk.tree(name),
            Target::Done => true,
        };
        if !finished {
            return false;
        }
        self.target = Target::Done;
        while !walk.deep.is_empty() {
            if !walk.tree(&numbered(DEEP, walk.deep.start)) {
                return false;
            }
            walk.deep.start += 1;
        }
        true
    }
}

impl Walk<'_> {
    fn everything(&mut self) -> bool {
        match Dir::read_from(self.root) {
            Ok(dir) => self.descend(Level { dir, name: None, progress: false }),
            Err(error) => {
                self.failure.get_or_insert(error);
                true
            }
        }
    }

    fn tree(&mut self, name: &CStr) -> bool {
        match self.take(self.root, name, FileType::Unknown, 0) {
            Ok(None) => true,
            Ok(Some(level)) => self.descend(level),
            Err(error) => {
                self.failure.get_or_insert(error);
                true
            }
        }
    }

    /// Deletes what is in `first`, and itself; whether it came to the end.
    fn descend(&mut self, first: Level) -> bool {
        let mut levels = vec![first];
        loop {
            let depth = levels.len();
            let Some(level) = levels.last_mut() else { return true };
            if self.left == 0 {
                return false;
            }
            let entry = match level.dir.read() {
                Some(Ok(entry)) => entry,
                Some(Err(error)) => {
                    self.failure.get_or_insert(error);
                    self.leave(&mut levels);
                    continue;
                }
                None => {
                    self.leave(&mut levels);
                    continue;
                }
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let taken = level.dir.fd().and_then(|fd| self.take(fd, name, entry.file_type(), depth));
            match taken {
                Ok(None) => {
                    level.progress = true;
                    self.left = self.left.saturating_sub(1);
                }
                Ok(Some(next)) => levels.push(next),
                Err(error) => {
                    self.failure.get_or_insert(error);
                }
            }
        }
    }

    /// Deletes one entry, or opens it when it has entries itself, or moves it up when it is too
    /// deep for that.
    fn take(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        kind: FileType,
        depth: usize,
    ) -> Result<Option<Level>> {
        // The kind is what the file system said when it was read; some never say.
        if kind != FileType::Directory {
            match unlinkat(parent, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => {}
                Ok(()) | Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Ok(()) | Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error),
        }
        if depth >= DEPTH_MAX {
            return self.move_up(parent, name).map(|()| None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Whatever is mounted there belongs to somebody else.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let dir = Dir::new(openat2(parent, name, flags, Mode::empty(), resolve)?)?;
        Ok(Some(Level { dir, name: Some(name.to_owned()), progress: false }))
    }

    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
        loop {
            let number = next_number();
            match renameat(parent, name, self.root, numbered(DEEP, number)) {
                Ok(()) => {
                    let first = if self.deep.is_empty() { number } else { self.deep.start };
                    *self.deep = first..number + 1;
                    return Ok(());
                }
                // An earlier server left something of this name.
                Err(Errno::EXIST | Errno::NOTEMPTY) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes the folder that has been read to its end, or reads it once more.
    fn leave(&mut self, levels: &mut Vec<Level>) {
        let Some(mut level) = levels.pop() else { return };
        let removed = match (&level.name, levels.last()) {
            (None, _) => Err(Errno::NOTEMPTY),
            (Some(name), None) => unlinkat(self.root, name, AtFlags::REMOVEDIR),
            (Some(name), Some(above)) => {
                above.dir.fd().and_then(|fd| unlinkat(fd, name, AtFlags::REMOVEDIR))
            }
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => {
                self.left = self.left.saturating_sub(1);
                if let Some(above) = levels.last_mut() {
                    above.progress = true;
                }
            }
            // Deleting while reading can make a file system skip entries.
            Err(Errno::NOTEMPTY | Errno::EXIST) if level.progress => {
                level.progress = false;
                level.dir.rewind();
                levels.push(level);
            }
            Err(_) if level.name.is_none() => {}
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
    }
}
