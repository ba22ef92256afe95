//! The environment that commands see.

mod entries;

use crate::{
    Identity,
    accounts::{Accounts, Login},
    expand, sys,
};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::Read,
    os::unix::fs::{OpenOptionsExt, chown},
    path::{Path, PathBuf},
};

/// Environment variables by name.
pub type Variables = BTreeMap<String, String>;

/// The variable that names the file whose `KEY=VALUE` entries join every command's environment.
pub const FILE_VARIABLE: &str = "EXECD_ENVS";
const FILE_DEFAULT: &str = "/opt/opensandbox/.env";
const FILE_BYTES_MAX: u64 = 1 << 20;
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What commands start from: the sandbox's own variables, the file that commands may append to,
/// and who and where they are by default.
#[derive(Debug)]
pub struct Environment {
    base: Variables,
    file: PathBuf,
    user: Option<Identity>,
    workdir: Option<PathBuf>,
}

impl Environment {
    /// Completes the sandbox's variables (`PATH`, the file's name) and prepares the file's place,
    /// which `user` must be able to write.
    pub fn new(mut base: Variables, workdir: Option<PathBuf>, user: Option<Identity>) -> Self {
        base.entry("PATH".to_owned()).or_insert_with(|| PATH_DEFAULT.to_owned());
        let file = PathBuf::from(
            base.entry(FILE_VARIABLE.to_owned()).or_insert_with(|| FILE_DEFAULT.to_owned()).clone(),
        );
        // A read-only image has no such file: then nothing can be appended, and commands still run.
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).ok();
        }
        if let Some(user) = &user
            && OpenOptions::new().append(true).create_new(true).open(&file).is_ok()
        {
            chown(&file, Some(user.uid), Some(user.gid)).ok();
        }
        Self { base, file, user, workdir }
    }

    /// The directory commands start in when they name none.
    pub fn cwd(&self) -> &Path {
        self.workdir.as_deref().unwrap_or(Path::new("/"))
    }

    /// The same where somebody chose it.
    pub fn workdir(&self) -> Option<&Path> {
        self.workdir.as_deref()
    }

    /// Who commands run as when they name nobody; nothing for the agent's own identity.
    pub fn user(&self) -> Option<&Identity> {
        self.user.as_ref()
    }

    /// The sandbox's own variables, without those of the file.
    pub fn variables(&self) -> &Variables {
        &self.base
    }

    /// Everything a command sees: sandbox, then the file, then the request's own variables.
    /// Reads files, so it belongs on a blocking thread.
    pub fn compose(&self, identity: Option<&Identity>, own: &Variables) -> Variables {
        let mut all = self.base.clone();
        all.extend(entries::parse(&self.read_file()));
        all.extend(own.iter().map(|(name, value)| (name.clone(), value.clone())));
        all.entry("HOME".to_owned()).or_insert_with(|| home(identity));
        all.retain(|name, value| is_valid(name, value));
        all
    }

    /// The same for somebody who logs in: `HOME`, `USER` and `LOGNAME` are theirs. What the
    /// sandbox says of these is about its own user, so it counts for nobody else.
    pub fn login(&self, login: &Login, own: &Variables) -> Variables {
        let mut all = self.base.clone();
        all.extend(entries::parse(&self.read_file()));
        let home = login.home.to_string_lossy();
        for (name, value) in [("HOME", &*home), ("USER", &login.name), ("LOGNAME", &login.name)] {
            if login.is_named || !all.contains_key(name) {
                all.insert(name.to_owned(), value.to_owned());
            }
        }
        all.extend(own.iter().map(|(name, value)| (name.clone(), value.clone())));
        all.retain(|name, value| is_valid(name, value));
        all
    }

    /// Expands a path argument with the sandbox's variables.
    pub fn expand(&self, path: &str, identity: Option<&Identity>) -> PathBuf {
        expand::expand(path, self.cwd(), |name| match self.base.get(name) {
            Some(value) => Some(value.clone()),
            None if name == "HOME" => Some(home(identity)),
            None => None,
        })
    }

    fn read_file(&self) -> String {
        let mut bytes = Vec::new();
        // Non-blocking, so that a pipe put in the file's place cannot hold a thread for ever.
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&self.file);
        let read = opened.and_then(|file: File| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
        match read {
            Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => String::new(),
        }
    }
}

fn home(identity: Option<&Identity>) -> String {
    let uid = identity.map_or_else(sys::effective_uid, |identity| identity.uid);
    Accounts::load().home(uid).to_string_lossy().into_owned()
}

/// Whether the kernel can carry the pair at all.
fn is_valid(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_sources_win_and_the_file_is_read_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new/.env");
        let base = Variables::from([
            (FILE_VARIABLE.to_owned(), file.to_string_lossy().into_owned()),
            ("A".to_owned(), "base".to_owned()),
        ]);
        let environment = Environment::new(base, None, None);
        fs::write(&file, "# no\n\nA=file\nB=x=y\nbroken\nexport C=3\n=v\n").unwrap();
        let own = Variables::from([("C".to_owned(), "own".to_owned())]);
        let all = environment.compose(None, &own);
        let picked = ["A", "B", "C"].map(|name| all[name].as_str());
        assert_eq!(picked, ["file", "x=y", "own"]);
        assert!(all.contains_key("PATH") && all.contains_key("HOME") && !all.contains_key(""));
        fs::write(&file, "A=again\n").unwrap();
        assert_eq!(environment.compose(None, &Variables::new())["A"], "again");
    }
}
