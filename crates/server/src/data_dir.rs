//! The data folder: one server at a time, its key, its secrets.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::ServeError;

/// Held by the server that uses the folder.
const LOCK: &str = "lock";
const PRIVATE_FOLDER: u32 = 0o700;

/// An open data folder; nobody else can open it until this is dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes the folder if need be, closes it to other users, and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, ServeError> {
        let failed = |doing, source| ServeError::DataDir { doing, path: path.to_owned(), source };
        DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE_FOLDER)
            .create(path)
            .map_err(|source| failed("can't make the data folder", source))?;
        close_to_others(path).map_err(|source| failed("can't use as the data folder:", source))?;
        let file = path.join(LOCK);
        let lock = private().write(true).create(true).truncate(false).open(&file);
        let lock = lock.map_err(|source| failed("can't write to the data folder", source))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(ServeError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed("can't lock the data folder", source)),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Closes a file in the folder to other users, whoever made it.
    pub(crate) fn keep_private(&self, name: &str) -> Result<(), ServeError> {
        let path = self.path.join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .map_err(|source| ServeError::DataDir { doing: "can't make private", path, source })
    }

    /// The API key in the file `api-key`, made when there is none. The form `e2b_` + 40 digits is
    /// what the oldest SDKs of another door insist on.
    pub(crate) fn api_key(&self) -> Result<String, ServeError> {
        self.kept("api-key", || format!("e2b_{}", random_hex(20)))
    }

    /// The secret that signs routes, made when there is none.
    pub(crate) fn signing_secret(&self) -> Result<String, ServeError> {
        self.kept("signing-secret", || random_hex(32))
    }

    /// The content of a private file, made once. Written beside and renamed, so that a crash
    /// leaves no half a key.
    fn kept(&self, name: &str, make: impl FnOnce() -> String) -> Result<String, ServeError> {
        let path = self.path.join(name);
        let failed = |doing, source| ServeError::DataDir { doing, path: path.clone(), source };
        match fs::read_to_string(&path) {
            Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(failed("can't read", source)),
        }
        let made = make();
        let new = self.path.join(format!("{name}.new"));
        let write = || {
            let mut file = private().write(true).create(true).truncate(true).open(&new)?;
            writeln!(file, "{made}")?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|source| failed("can't write", source))?;
        Ok(made)
    }
}

/// Takes everybody else's rights to the folder away; but never from a folder that others use, such
/// as one named by mistake.
fn close_to_others(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.permissions().mode() & 0o7777 == PRIVATE_FOLDER {
        return Ok(());
    }
    if !path.join(LOCK).exists() {
        for entry in fs::read_dir(path)? {
            if entry?.file_name() != "lost+found" {
                return Err(io::Error::other(
                    "other users may enter it and it holds files that are not a server's; \
                     `chmod 700` it, or name an empty folder with --data-dir",
                ));
            }
        }
    }
    fs::set_permissions(path, fs::Permissions::from_mode(PRIVATE_FOLDER))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// `bytes` random bytes in hexadecimal.
pub(crate) fn random_hex(bytes: usize) -> String {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).expect("Linux has had a random source since 3.17");
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn open_to_all(path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_folder_has_one_server_and_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let open = DataDir::open(&path).unwrap();
        let key = open.api_key().unwrap();
        assert!(key.starts_with("e2b_") && key.len() == 44, "{key}");
        assert_eq!(mode(&path.join("api-key")), 0o600);
        assert!(matches!(DataDir::open(&path), Err(ServeError::InUse(_))));
        drop(open);
        let again = DataDir::open(&path).unwrap();
        assert_eq!(again.api_key().unwrap(), key);
        assert_ne!(again.signing_secret().unwrap(), key);
    }

    #[test]
    fn a_folder_that_was_there_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        for _ in ["empty", "of an earlier server"] {
            open_to_all(folder.path());
            drop(DataDir::open(folder.path()).unwrap());
            assert_eq!(mode(folder.path()), 0o700);
        }
    }

    #[test]
    fn a_folder_that_others_use_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        open_to_all(folder.path());
        fs::write(folder.path().join("theirs"), "x").unwrap();
        let refused = DataDir::open(folder.path()).unwrap_err();
        let ServeError::DataDir { source, .. } = refused else { panic!("{refused}") };
        assert!(source.to_string().contains("chmod 700"), "{source}");
        assert_eq!(mode(folder.path()), 0o755);
        assert!(!folder.path().join("lock").exists());
    }
}
