//! The directory through which the agent and a session's shell exchange texts and state.

use crate::{Error, Result, id};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Where the directory may lie, best first: an image may make some of these read-only.
const PLACES: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];
/// The states that the shell writes in turn, so that one is whole whenever the shell is killed.
const STATES: [&str; 2] = ["state.0", "state.1"];
/// The last line of a whole state, followed by its number.
const STATE_END: &[u8] = b"\n# saved ";
const STATE_END_BYTES_MAX: u64 = 64;

/// A session's directory. All of this blocks and acts as the sandbox's user, who owns it and may
/// have changed anything in it.
#[derive(Debug)]
pub(super) struct Home {
    path: PathBuf,
}

impl Home {
    pub(super) fn create(id: &str) -> Result<Self> {
        let mut refused = None;
        for place in std::iter::once(std::env::temp_dir()).chain(PLACES.map(PathBuf::from)) {
            let path = place.join(format!(".atoll-session-{id}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(source) => refused = refused.or(Some(Error::file("create", path, source))),
            }
        }
        Err(refused.expect("at least one place was tried"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Lays a run's text out for the shell, and how to enter its directory if it names one.
    pub(super) fn lay_out(&self, text: &str, cwd: Option<&Path>) -> Result<()> {
        let failed = |source| Error::File { action: "write in", path: self.path.clone(), source };
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            // Made anew where a run has emptied the place.
            _ => {}
        }
        if let Some(cwd) = cwd {
            let line = [b"command cd -- ".as_slice(), &quote(cwd), b"\n"].concat();
            self.replace("enter", &line).map_err(failed)?;
        }
        self.replace("run", text.as_bytes()).map_err(failed)
    }

    /// A shell that is still reading the old file keeps it whole.
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let fresh = self.path.join(id::fresh());
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        let placed =
            file.write_all(content).and_then(|()| fs::rename(&fresh, self.path.join(name)));
        if placed.is_err() {
            fs::remove_file(&fresh).ok();
        }
        placed
    }

    /// The newest state that a shell wrote to its end.
    pub(super) fn newest_state(&self) -> Option<PathBuf> {
        let paths = STATES.map(|name| self.path.join(name));
        let whole = paths.into_iter().filter_map(|path| Some((state_number(&path)?, path)));
        whole.max_by_key(|(number, _)| *number).map(|(_, path)| path)
    }

    /// Removes everything. A run may have done so already.
    pub(super) fn remove(&self) {
        fs::remove_dir_all(&self.path).ok();
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // For a guest that ends with its sessions open.
        self.remove();
    }
}

fn state_number(path: &Path) -> Option<u64> {
    let mut options = OpenOptions::new();
    // Neither a link nor a pipe that a run put in its place is followed or waited for.
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
    let mut file: File = options.open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(STATE_END_BYTES_MAX))).ok()?;
    let mut end = Vec::new();
    file.take(STATE_END_BYTES_MAX).read_to_end(&mut end).ok()?;
    let at = end.windows(STATE_END.len()).rposition(|window| window == STATE_END)?;
    let number = end[at + STATE_END.len()..].strip_suffix(b"\n")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// A path as one word of a shell.
fn quote(path: &Path) -> Vec<u8> {
    let mut word = vec![b'\''];
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'\'' => word.extend_from_slice(br"'\''"),
            byte => word.push(*byte),
        }
    }
    word.push(b'\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_states_count_and_the_newest_wins() {
        let home = Home::create(&id::fresh()).unwrap();
        assert_eq!(home.newest_state(), None);
        fs::write(home.path().join("state.0"), "x=1\n# saved 2\n").unwrap();
        fs::write(home.path().join("state.1"), "x=2\n# saved 3").unwrap();
        assert_eq!(home.newest_state(), Some(home.path().join("state.0")));
        fs::write(home.path().join("state.1"), "x=2\n# saved 3\n").unwrap();
        assert_eq!(home.newest_state(), Some(home.path().join("state.1")));
        std::os::unix::fs::symlink("/etc/passwd", home.path().join("link")).unwrap();
        assert_eq!(state_number(&home.path().join("link")), None);
    }

    #[test]
    fn a_lost_directory_is_made_again_and_goes_in_the_end() {
        let home = Home::create(&id::fresh()).unwrap();
        fs::remove_dir_all(home.path()).unwrap();
        home.lay_out("echo hi", Some(Path::new("/it's\na $(dir)"))).unwrap();
        let entry = fs::read_to_string(home.path().join("enter")).unwrap();
        assert_eq!(entry, "command cd -- '/it'\\''s\na $(dir)'\n");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "nothing is left over");
        let path = home.path().to_owned();
        drop(home);
        assert!(!path.exists());
    }
}
