//! Where the agent and one kernel find each other.

use crate::{Error, Result, id};
use serde_json::json;
use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::PathBuf,
};

/// Where the folder may lie, best first: an image may make some of these read-only.
const FOLDERS: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];
/// Ports above those that Linux gives to outgoing connections: one of these cannot be taken by
/// the agent's own attempts to reach it.
const PORTS: std::ops::RangeInclusive<u16> = 61_000..=65_500;
const PORT_TRIES_MAX: usize = 2000;

/// A folder with the file that tells a kernel its ports and its secret. Whoever makes it must be
/// the user that the kernel runs as.
#[derive(Debug)]
pub(super) struct Place {
    folder: PathBuf,
    pub(super) shell: u16,
    pub(super) iopub: u16,
    pub(super) control: u16,
    pub(super) secret: String,
}

impl Place {
    /// Chooses free ports and writes the file. Blocks.
    pub(super) fn create() -> Result<Self> {
        let folder = create_folder()?;
        let listeners = free_ports::<5>()?;
        let [shell, iopub, control, stdin, hb] = listeners.each_ref().map(|(port, _)| *port);
        let secret = id::fresh() + &id::fresh();
        let text = json!({
            "transport": "tcp",
            "ip": "127.0.0.1",
            "shell_port": shell,
            "iopub_port": iopub,
            "control_port": control,
            "stdin_port": stdin,
            "hb_port": hb,
            "signature_scheme": "hmac-sha256",
            "key": secret,
        });
        let place = Self { folder, shell, iopub, control, secret };
        let path = place.file();
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        opened
            .and_then(|mut file| file.write_all(text.to_string().as_bytes()))
            .map_err(|source| Error::file("write", path, source))?;
        Ok(place)
    }

    /// The file that the kernel is started with.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.join("connection.json")
    }

    /// The folder to be removed by whoever may, when the kernel has ended.
    pub(super) fn folder(&self) -> PathBuf {
        self.folder.clone()
    }
}

fn create_folder() -> Result<PathBuf> {
    let mut refused = None;
    for place in std::iter::once(std::env::temp_dir()).chain(FOLDERS.map(PathBuf::from)) {
        let path = place.join(format!(".atoll-kernel-{}", id::fresh()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(source) => refused = refused.or(Some(Error::file("create", path, source))),
        }
    }
    Err(refused.expect("at least one place was tried"))
}

/// Different ports that nobody listens at, held until the listeners are dropped.
fn free_ports<const COUNT: usize>() -> Result<[(u16, TcpListener); COUNT]> {
    let span = u32::from(PORTS.end() - PORTS.start()) + 1;
    let mut found = Vec::with_capacity(COUNT);
    for _ in 0..PORT_TRIES_MAX {
        let random = getrandom::u32().expect("Linux always has a random source");
        let port = PORTS.start() + (random % span) as u16;
        // A failure means that the port is in use, by us or by others.
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            found.push((port, listener));
        }
        if found.len() == COUNT {
            break;
        }
    }
    let none = || io::Error::new(io::ErrorKind::AddrInUse, "no free port was found");
    let source = || Error::System { action: "choose ports for a kernel", source: none() };
    found.try_into().map_err(|_| source())
}

/// Removes what [`Place::create`] made. The kernel's user may have changed anything in it.
pub(super) fn remove(folder: &PathBuf) {
    fs::remove_dir_all(folder).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashSet, os::unix::fs::PermissionsExt};

    #[test]
    fn the_file_is_private_and_its_ports_are_free() {
        let place = Place::create().unwrap();
        let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&place.folder()), mode(&place.file())), (0o700, 0o600));
        let text = fs::read_to_string(place.file()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let names = ["shell_port", "iopub_port", "control_port", "stdin_port", "hb_port"];
        let ports: HashSet<u64> = names.iter().map(|name| value[name].as_u64().unwrap()).collect();
        assert_eq!(ports.len(), names.len());
        assert_eq!(value["key"].as_str().unwrap(), place.secret);
        remove(&place.folder());
        assert!(!place.folder().exists());
    }
}
