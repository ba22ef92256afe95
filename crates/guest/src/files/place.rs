use super::{Attributes, attributes::replace_attributes};
use crate::{Error, Identity, Result};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown, fchown},
    path::{Path, PathBuf},
};

/// Content up to this size is written at once when it has come whole.
const HELD_BYTES_MAX: usize = 1 << 20;
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// A file that is received in its place, for a given owner.
///
/// Watchers see exactly what happens to it: it is created, given to its owner, and written. Small
/// content is held back until it is whole; larger content is written as it comes, and if it then
/// breaks off, a file that was new disappears again.
#[derive(Debug)]
pub struct Incoming {
    path: PathBuf,
    owner: Identity,
    prefix: String,
    attributes: Attributes,
    held: Vec<u8>,
    open: Option<File>,
    /// Made by this upload and not whole yet.
    is_unfinished: bool,
}

impl Incoming {
    /// Prepares to receive a file. Nothing changes yet.
    pub fn new(
        path: PathBuf,
        owner: Identity,
        prefix: &str,
        attributes: Attributes,
    ) -> Result<Self> {
        check(&path)?;
        let prefix = prefix.to_owned();
        let (held, open, is_unfinished) = (Vec::new(), None, false);
        Ok(Self { path, owner, prefix, attributes, held, open, is_unfinished })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.open.is_none() && self.held.len() + bytes.len() <= HELD_BYTES_MAX {
            self.held.extend_from_slice(bytes);
            return Ok(());
        }
        self.open()?;
        self.append(bytes)
    }

    /// Ends the content.
    pub fn finish(mut self) -> Result<()> {
        self.open()?;
        self.is_unfinished = false;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.open {
            Some(file) if !bytes.is_empty() => file
                .write_all(bytes)
                .map_err(|source| Error::File { action: "write", path: self.path.clone(), source }),
            _ => Ok(()),
        }
    }

    /// Opens the file and writes what was held back.
    fn open(&mut self) -> Result<()> {
        if self.open.is_some() {
            return Ok(());
        }
        let failed = |action| {
            let path = self.path.clone();
            move |source| Error::File { action, path, source }
        };
        make_parents(&self.path, &self.owner)?;
        let mut options = OpenOptions::new();
        // Non-blocking, because opening a pipe put there meanwhile would wait for its other end.
        options.write(true).mode(FILE_MODE).custom_flags(libc::O_NONBLOCK);
        let (file, is_new) = match options.clone().create_new(true).open(&self.path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                check(&self.path)?;
                // A link that leads nowhere exists, but what it names does not.
                let opened = options.create(true).truncate(false).open(&self.path);
                (opened.map_err(failed("write"))?, false)
            }
            Err(error) => return Err(failed("create")(error)),
        };
        self.is_unfinished = is_new;
        fchown(&file, Some(self.owner.uid), Some(self.owner.gid)).map_err(failed("give away"))?;
        replace_attributes(&file, &self.path, &self.prefix, &self.attributes)?;
        if !is_new {
            // Last, so that a refusal leaves the old content.
            file.set_len(0).map_err(failed("write"))?;
        }
        self.open = Some(file);
        let held = std::mem::take(&mut self.held);
        self.append(&held)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if self.is_unfinished {
            fs::remove_file(&self.path).ok();
        }
    }
}

fn check(path: &Path) -> Result<()> {
    let problem = match fs::metadata(path) {
        Ok(found) if found.is_dir() => "is a directory; name a file",
        Ok(found) if !found.is_file() => "is not a regular file; choose another path",
        _ => return Ok(()),
    };
    Err(Error::Unsuitable { path: path.to_owned(), problem: problem.to_owned() })
}

/// Makes a directory and its missing parents, all of them given to `owner`; says whether it is new.
pub fn make_directory_for(path: &Path, owner: &Identity) -> Result<bool> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
    let mut is_new = false;
    for directory in missing.into_iter().rev() {
        let failed = |source| Error::File {
            action: "create the directory",
            path: directory.to_owned(),
            source,
        };
        match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
            Ok(()) => {
                chown(directory, Some(owner.uid), Some(owner.gid)).map_err(failed)?;
                is_new = directory == path;
            }
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(error) => return Err(failed(error)),
        }
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(is_new),
        Ok(_) => {
            let problem = "exists and is not a directory; choose another name".to_owned();
            Err(Error::Unsuitable { path: path.to_owned(), problem })
        }
        Err(error) => Err(Error::file("look at", path, error)),
    }
}

fn make_parents(path: &Path, owner: &Identity) -> Result<()> {
    path.parent().map_or(Ok(false), |parent| make_directory_for(parent, owner)).map(drop)
}

/// Moves a path over whatever file has the destination's name, making missing parents.
pub fn move_over(source: &Path, destination: &Path, owner: &Identity) -> Result<()> {
    fs::symlink_metadata(source).map_err(|error| Error::file("move", source, error))?;
    make_parents(destination, owner)?;
    match fs::rename(source, destination) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            super::change::copy_then_remove(source, destination)
        }
        other => other.map_err(|error| Error::File {
            action: "move",
            path: source.to_owned(),
            source: error,
        }),
    }
}

/// Puts the content of several files, one after the other, into a file for `owner`, and removes
/// them; the destination may be one of them.
pub fn join(sources: &[PathBuf], destination: &Path, owner: &Identity, prefix: &str) -> Result<()> {
    check(destination)?;
    make_parents(destination, owner)?;
    let name = format!(".atoll-join-{}", crate::id::fresh());
    let partial = destination.with_file_name(name);
    let joined = join_into(sources, &partial, owner, prefix).and_then(|()| {
        let failed = |source| Error::File { action: "write", path: destination.to_owned(), source };
        fs::rename(&partial, destination).map_err(failed)
    });
    if joined.is_err() {
        fs::remove_file(&partial).ok();
        return joined;
    }
    let kept = fs::metadata(destination).map(|found| (found.dev(), found.ino())).ok();
    for source in sources {
        let same = fs::metadata(source).is_ok_and(|found| Some((found.dev(), found.ino())) == kept);
        if !same {
            super::remove_file(source)?;
        }
    }
    Ok(())
}

fn join_into(sources: &[PathBuf], partial: &Path, owner: &Identity, prefix: &str) -> Result<()> {
    let failed = |source| Error::File { action: "write", path: partial.to_owned(), source };
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(FILE_MODE).open(partial);
    let mut file = opened.map_err(failed)?;
    fchown(&file, Some(owner.uid), Some(owner.gid)).map_err(failed)?;
    replace_attributes(&file, partial, prefix, &Attributes::new())?;
    for source in sources {
        let mut content = super::open(source)?.into_file();
        io::copy(&mut content, &mut file).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Identity {
        Identity { uid: crate::sys::effective_uid(), gid: 0, groups: Vec::new() }
    }

    fn incoming(path: &Path) -> Incoming {
        Incoming::new(path.to_owned(), own(), "user.test.", Attributes::new()).unwrap()
    }

    #[test]
    fn small_content_is_seen_whole_or_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/file");
        let mut file = incoming(&path);
        file.write(b"half").unwrap();
        drop(file);
        assert!(!root.path().join("a").exists());
        let mut file = incoming(&path);
        file.write(b"wh").unwrap();
        file.write(b"ole").unwrap();
        assert!(!path.exists());
        file.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        incoming(&path).finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "", "no content is content");
    }

    #[test]
    fn large_content_that_breaks_off_leaves_no_new_file() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        let mut file = incoming(&path);
        file.write(&vec![1; HELD_BYTES_MAX]).unwrap();
        assert!(!path.exists());
        file.write(&[2]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), HELD_BYTES_MAX as u64 + 1);
        drop(file);
        assert!(!path.exists());
        fs::write(&path, "old").unwrap();
        let mut file = incoming(&path);
        file.write(b"new").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old", "an old file is not touched early");
    }

    #[test]
    fn joining_removes_the_pieces_but_not_the_whole() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("1"), "one").unwrap();
        fs::write(at("2"), "two").unwrap();
        join(&[at("1"), at("2"), at("1")], &at("1"), &own(), "user.test.").unwrap();
        assert_eq!(fs::read_to_string(at("1")).unwrap(), "onetwoone");
        assert!(!at("2").exists());
        join(&[at("1"), at("none")], &at("3"), &own(), "user.test.").unwrap_err();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "a failure leaves nothing");
    }
}
