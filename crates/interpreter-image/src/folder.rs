//! The folder that keeps trees: of this user alone, and with one builder at a time.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    time::Duration,
};

use crate::{Error, build::failed};

/// Held by whoever builds.
const LOCK: &str = ".lock";
/// Begins the names of folders in which somebody builds.
pub(crate) const UNFINISHED: &str = ".unfinished-";
const PRIVATE: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Rights that let somebody enter or change a folder.
const RIGHTS_OF_OTHERS: u32 = 0o077;
const ENTRY_OF_OTHERS: u32 = 0o011;
/// How often to see whether another builder is done.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Makes the folder, private to this user. One that is there and that others can enter is refused:
/// everything in a tree is open to everybody, so they may have changed it.
pub fn prepare_folder(folder: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(PRIVATE).create(folder);
    made.map_err(failed("create", folder))?;
    close(folder, rustix::process::geteuid().as_raw())
}

fn close(folder: &Path, user: u32) -> Result<(), Error> {
    let refused = |problem: String| Error::Folder { path: folder.to_owned(), problem };
    let found = fs::metadata(folder).map_err(failed("look at", folder))?;
    if found.uid() != user {
        let problem = format!("it belongs to user {}; name a folder of your own", found.uid());
        return Err(refused(problem));
    }
    if found.mode() & RIGHTS_OF_OTHERS == 0 {
        return Ok(());
    }
    let mut entries = fs::read_dir(folder).map_err(failed("read", folder))?;
    if entries.next().is_some() && is_within_reach(folder)? {
        let problem = "other users may enter it and change what it holds; remove it, or \
                       `chmod 700` it if you trust them";
        return Err(refused(problem.to_owned()));
    }
    fs::set_permissions(folder, Permissions::from_mode(PRIVATE))
        .map_err(failed("close to others", folder))
}

/// Whether no folder on the way keeps others out.
fn is_within_reach(folder: &Path) -> Result<bool, Error> {
    let real = folder.canonicalize().map_err(failed("resolve", folder))?;
    for step in real.ancestors() {
        let found = fs::metadata(step).map_err(failed("look at", step))?;
        if found.mode() & ENTRY_OF_OTHERS == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits until nobody else builds in the folder. Nobody does until the answer is dropped, even if
/// this program is killed.
pub(crate) async fn lock(folder: &Path, progress: impl Fn(&str)) -> Result<File, Error> {
    let path = folder.join(LOCK);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(PRIVATE_FILE);
    let file = options.open(&path).map_err(failed("open", &path))?;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {
                if !told {
                    progress("waiting for another server that is building it");
                    told = true;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
        }
    }
}

/// Removes what builders that were killed left behind; only for who holds the lock.
pub(crate) fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
            // A program that outlived its builder may still write there; the next build sees to it.
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

#[cfg(test)]
mod tests;
