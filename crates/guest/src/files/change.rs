use crate::{Error, Result, accounts::Accounts};
use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, lchown},
    path::Path,
};

/// Permission changes; what is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Permission bits.
    pub mode: Option<u32>,
    /// New owner, name or number.
    pub owner: Option<String>,
    /// New group, name or number.
    pub group: Option<String>,
}

/// Reads a mode that was written in octal digits but sent as a decimal number: 644 is `0o644`.
pub fn mode_from_digits(digits: u32) -> Result<u32> {
    let text = digits.to_string();
    u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o7777).ok_or_else(|| {
        Error::invalid("mode", format!("{digits} is not an octal mode; write it like 644 or 755"))
    })
}

/// Writes a mode the same way: `0o644` is 644.
pub fn mode_to_digits(mode: u32) -> u32 {
    let mode = mode & 0o7777;
    (mode >> 9) * 1000 + (mode >> 6 & 7) * 100 + (mode >> 3 & 7) * 10 + (mode & 7)
}

/// Changes owner, group and mode of a path. The mode comes last, because a new owner clears its
/// special bits.
pub fn set_permissions(path: &Path, change: &Permissions) -> Result<()> {
    let failed = |error| Error::file("change permissions of", path, error);
    let found = fs::symlink_metadata(path).map_err(failed)?;
    if change.owner.is_some() || change.group.is_some() {
        let accounts = Accounts::load();
        let uid = change.owner.as_deref().map(|owner| accounts.uid(owner)).transpose()?;
        let gid = change.group.as_deref().map(|group| accounts.gid(group)).transpose()?;
        lchown(path, uid, gid).map_err(failed)?;
    }
    match change.mode {
        // A link has no mode of its own, and its target was not asked for.
        Some(mode) if !found.is_symlink() => {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)
        }
        _ => Ok(()),
    }
}

/// Removes a file or link; one that does not exist is fine, a directory is not.
pub fn remove_file(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if found.is_dir() => {
            let problem = "is a directory; delete it as a directory".to_owned();
            return Err(Error::Unsuitable { path: path.to_owned(), problem });
        }
        _ => {}
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|error| Error::file("remove", path, error)),
    }
}

/// Moves a path, making the parents of the destination; an existing destination is refused.
pub fn rename(source: &Path, destination: &Path) -> Result<()> {
    fs::symlink_metadata(source).map_err(|error| Error::file("move", source, error))?;
    if fs::symlink_metadata(destination).is_ok() {
        let problem = "exists already; remove it first or choose another name".to_owned();
        return Err(Error::Unsuitable { path: destination.to_owned(), problem });
    }
    make_parents(destination)?;
    match fs::rename(source, destination) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            copy_then_remove(source, destination)
        }
        other => other.map_err(|error| Error::File {
            action: "move",
            path: source.to_owned(),
            source: error,
        }),
    }
}

pub(super) fn copy_then_remove(source: &Path, destination: &Path) -> Result<()> {
    if fs::symlink_metadata(source).is_ok_and(|found| !found.is_file()) {
        let problem = "lies on another file system; only plain files can be moved between them";
        return Err(Error::Unsuitable { path: source.to_owned(), problem: problem.to_owned() });
    }
    fs::copy(source, destination).map_err(|error| Error::file("copy", source, error))?;
    fs::remove_file(source).map_err(|error| Error::file("remove", source, error))
}

pub(super) fn make_parents(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) => fs::create_dir_all(parent).map_err(|source| Error::File {
            action: "create the directory",
            path: parent.to_owned(),
            source,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_travel_as_octal_digits() {
        for (digits, mode) in [(644, 0o644), (755, 0o755), (0, 0), (1777, 0o1777), (7777, 0o7777)] {
            assert_eq!(mode_from_digits(digits).unwrap(), mode);
            assert_eq!(mode_to_digits(mode), digits);
        }
        for digits in [888, 10000, 649, u32::MAX] {
            assert!(mode_from_digits(digits).is_err(), "{digits}");
        }
    }
}
