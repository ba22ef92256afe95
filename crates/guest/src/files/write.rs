use super::{Permissions, change::make_parents, set_permissions};
use crate::{Error, Result, id};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// A file being received, beside the place where it will appear.
///
/// Nothing is seen under its name before [`Staged::commit`]; whatever is dropped earlier leaves
/// neither a file nor a directory behind.
#[derive(Debug)]
pub struct Upload {
    staged: Staged,
    file: File,
}

/// A file that has been received whole and waits to be put in its place.
#[derive(Debug)]
pub struct Staged {
    path: PathBuf,
    partial: PathBuf,
    /// The file exists and is filled in place, so that its owner, mode, links and mounts stay.
    existing: Option<Permissions>,
    parents: Parents,
}

/// Directories made for an upload, the outermost last; removed again unless it succeeds.
#[derive(Debug, Default)]
struct Parents(Vec<PathBuf>);

impl Upload {
    /// Prepares to receive a file, making its parents.
    pub fn begin(path: &Path) -> Result<Self> {
        let parents = Parents::make(path)?;
        let existing = match fs::metadata(path) {
            Ok(found) if !found.is_file() => {
                let problem = "is not a regular file; choose another path".to_owned();
                return Err(Error::Unsuitable { path: path.to_owned(), problem });
            }
            Ok(_) => {
                open_existing(path, false)?;
                Some(Permissions::default())
            }
            Err(_) => None,
        };
        let (partial, file) = create_partial(path, existing.is_some())?;
        let staged = Staged { path: path.to_owned(), partial, existing, parents };
        Ok(Self { staged, file })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| Error::file("write", &self.staged.path, error))
    }

    /// Ends the content.
    pub fn finish(self, permissions: &Permissions) -> Result<Staged> {
        let Self { mut staged, .. } = self;
        match &mut staged.existing {
            None => set_permissions(&staged.partial, permissions)?,
            Some(existing) => {
                // Only to learn whether they can be set; the content must stay readable.
                let owners = Permissions { mode: None, ..permissions.clone() };
                set_permissions(&staged.partial, &owners)?;
                *existing = permissions.clone();
            }
        }
        Ok(staged)
    }
}

impl Staged {
    /// Puts the file in its place.
    pub fn commit(mut self) -> Result<()> {
        let failed = |action| {
            let path = self.path.clone();
            move |source| Error::File { action, path, source }
        };
        match &self.existing {
            None => fs::rename(&self.partial, &self.path).map_err(failed("create"))?,
            Some(permissions) => {
                let mut content = File::open(&self.partial).map_err(failed("write"))?;
                let mut file = open_existing(&self.path, true)?;
                io::copy(&mut content, &mut file).map_err(failed("write"))?;
                set_permissions(&self.path, permissions)?;
            }
        }
        self.parents.0.clear();
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // A file that was renamed into its place is no longer there.
        fs::remove_file(&self.partial).ok();
    }
}

impl Parents {
    fn make(path: &Path) -> Result<Self> {
        let missing = path.ancestors().skip(1).take_while(|parent| !parent.exists());
        let parents = Self(missing.map(Path::to_owned).collect());
        make_parents(path)?;
        Ok(parents)
    }
}

impl Drop for Parents {
    fn drop(&mut self) {
        for directory in &self.0 {
            // Somebody else may have put something there meanwhile; then it stays.
            fs::remove_dir(directory).ok();
        }
    }
}

fn open_existing(path: &Path, truncate: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true).truncate(truncate).custom_flags(libc::O_NONBLOCK);
    options.open(path).map_err(|error| Error::file("write", path, error))
}

/// A new file beside `path`, or elsewhere if it need not be renamed and the directory is closed.
fn create_partial(path: &Path, anywhere: bool) -> Result<(PathBuf, File)> {
    let name = format!(".atoll-upload-{}", id::fresh());
    let create = |partial: PathBuf, mode| {
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(mode).open(&partial);
        opened.map(|file| (partial, file))
    };
    let beside = create(path.with_file_name(&name), if anywhere { 0o600 } else { 0o666 });
    let created = match beside {
        Err(_) if anywhere => create(std::env::temp_dir().join(&name), 0o600),
        other => other,
    };
    created.map_err(|source| Error::File { action: "create", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn nothing_is_seen_before_the_commit_and_nothing_left_without_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/new");
        let mut upload = Upload::begin(&path).unwrap();
        upload.write(b"x").unwrap();
        let staged = upload.finish(&Permissions::default()).unwrap();
        assert!(!path.exists());
        drop(staged);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        let mut upload = Upload::begin(&path).unwrap();
        upload.write(b"whole").unwrap();
        upload.finish(&Permissions::default()).unwrap().commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn an_existing_file_stays_itself() {
        let root = tempfile::tempdir().unwrap();
        let (path, link) = (root.path().join("file"), root.path().join("link"));
        fs::write(&path, "a long old content").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let before = fs::metadata(&path).unwrap();
        let mut upload = Upload::begin(&link).unwrap();
        upload.write(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a long old content");
        let refused = Permissions { owner: Some("no-such-user".to_owned()), ..Default::default() };
        upload.finish(&refused).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a long old content");
        let mut upload = Upload::begin(&link).unwrap();
        upload.write(b"new").unwrap();
        upload.finish(&Permissions::default()).unwrap().commit().unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2, "nothing is left over");
    }
}
