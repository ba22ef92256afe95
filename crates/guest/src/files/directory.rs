use super::{ENTRIES_MAX, Info, Kind, Pattern, Permissions, set_permissions};
use crate::{Error, Result, accounts::Accounts};
use std::{
    fs::{self, Metadata},
    io,
    path::{Path, PathBuf},
};

/// Entries that one search may look at.
const VISITED_MAX: usize = 2_000_000;
const DEPTH_MAX: usize = 256;

pub(super) fn too_many(path: &Path, limit: usize) -> Error {
    let problem = format!("holds more than {limit} entries; name a smaller directory");
    Error::Unsuitable { path: path.to_owned(), problem }
}

/// The entries below a directory down to `depth` levels, in lexical order, links not followed.
pub fn list(root: &Path, depth: usize) -> Result<Vec<Info>> {
    let found = fs::symlink_metadata(root).map_err(|error| Error::file("list", root, error))?;
    if !found.is_dir() {
        let problem = "is not a directory; name one (links are not followed)".to_owned();
        return Err(Error::Unsuitable { path: root.to_owned(), problem });
    }
    let (accounts, mut entries) = (Accounts::load(), Vec::new());
    let mut visit = |path, found: &Metadata| {
        entries.push(Info::new(path, found, &accounts));
        if entries.len() > ENTRIES_MAX { Err(too_many(root, ENTRIES_MAX)) } else { Ok(()) }
    };
    walk(root, depth, &mut visit)?;
    Ok(entries)
}

/// The regular files below a directory that match a pattern, in lexical order.
pub fn search(root: &Path, pattern: &Pattern) -> Result<Vec<Info>> {
    let found = fs::metadata(root).map_err(|error| Error::file("search", root, error))?;
    let (accounts, mut matches, mut visited) = (Accounts::load(), Vec::new(), 0);
    let mut visit = |path, found: &Metadata| {
        let info = Info::new(path, found, &accounts);
        visited += 1;
        if visited > VISITED_MAX || matches.len() > ENTRIES_MAX {
            return Err(too_many(
                root,
                if visited > VISITED_MAX { VISITED_MAX } else { ENTRIES_MAX },
            ));
        }
        let relative = info.path.strip_prefix(root).unwrap_or(&info.path).to_string_lossy();
        if info.kind == Kind::File && pattern.matches(&relative) {
            matches.push(info);
        }
        Ok(())
    };
    if found.is_dir() {
        walk(root, DEPTH_MAX, &mut visit)?;
    } else {
        visit(root.to_owned(), &found)?;
    }
    Ok(matches)
}

/// Visits entries depth first. What vanishes or may not be read on the way is passed over, but
/// the root itself must be readable.
pub(super) fn walk(
    root: &Path,
    depth: usize,
    visit: &mut impl FnMut(PathBuf, &Metadata) -> Result<()>,
) -> Result<()> {
    let depth = depth.min(DEPTH_MAX);
    if depth == 0 {
        return Ok(());
    }
    let failed = |error| Error::file("list", root, error);
    let mut stack = vec![sorted(root).map_err(failed)?.into_iter()];
    while let Some(level) = stack.last_mut() {
        let Some(path) = level.next() else {
            stack.pop();
            continue;
        };
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        let below = found.is_dir() && stack.len() < depth;
        let inside = if below { sorted(&path).ok() } else { None };
        visit(path, &found)?;
        stack.extend(inside.map(Vec::into_iter));
    }
    Ok(())
}

fn sorted(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.take(VISITED_MAX);
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    Ok(paths)
}

/// Makes a directory and its parents; permissions apply only if it is new.
pub fn make_directory(path: &Path, permissions: &Permissions) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(|source| Error::File {
        action: "create the directory",
        path: path.to_owned(),
        source,
    })?;
    set_permissions(path, permissions)
}

/// Removes a directory and everything below; one that does not exist is fine.
pub fn remove_directory(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|error| Error::file("remove", path, error)),
    }
}
