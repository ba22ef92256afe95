//! Making the user that commands run as, where the image has none of that name.
//!
//! Paths are followed as the image laid them: the agent is inside the sandbox, where a link can
//! lead to nothing but the sandbox's own files.

use anyhow::{Context, Result, bail};
use atoll_guest::accounts::Accounts;
use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt, chown},
    path::Path,
};

/// What most images give to their first ordinary user.
const FIRST_ID: u32 = 1000;
const LAST_ID: u32 = 60_000;
const NAME_BYTES_MAX: usize = 32;
/// Larger account files are the work of somebody hostile.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Makes the user `name` with a group, a home and the right to become root, unless there is one.
/// `root` is where `etc` and `home` are.
pub(crate) fn ensure(root: &Path, name: &str) -> Result<()> {
    let etc = root.join("etc");
    let passwd = read(&etc.join("passwd"))?;
    let group = read(&etc.join("group"))?;
    let accounts = Accounts::parse(&passwd, &group);
    if accounts.resolve(name).is_ok() {
        return Ok(());
    }
    check_name(name)?;
    let id = free_id(&accounts, &group).context("every user id is taken")?;
    let gid = accounts.gid(name).unwrap_or(id);
    let shell = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|path| under(root, path).exists());
    let shell = shell.unwrap_or("/bin/sh");
    fs::create_dir_all(&etc)?;
    if gid == id {
        append(&etc.join("group"), &group, &format!("{name}:x:{gid}:"))?;
    }
    if etc.join("shadow").exists() {
        let shadow = read(&etc.join("shadow"))?;
        // No password opens it, and it does not expire: `sudo` refuses users without a line.
        append(&etc.join("shadow"), &shadow, &format!("{name}:*:19000:0:99999:7:::"))?;
    }
    make_home(root, name, id, gid)?;
    allow_sudo(&etc.join("sudoers.d"), name)?;
    // Last: whoever finds the user finds all of it.
    let line = format!("{name}:x:{id}:{gid}::/home/{name}:{shell}");
    append(&etc.join("passwd"), &passwd, &line)
}

fn check_name(name: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    if !first || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
        bail!("use at most {NAME_BYTES_MAX} of a-z, 0-9, '_' and '-', beginning with a letter");
    }
    Ok(())
}

/// A number that is neither a user nor a group.
fn free_id(accounts: &Accounts, group: &str) -> Option<u32> {
    let used: Vec<u32> = group
        .lines()
        .filter_map(|line| line.split(':').nth(2)?.parse().ok())
        .chain(accounts.users().flat_map(|user| [user.uid, user.gid]))
        .collect();
    (FIRST_ID..=LAST_ID).find(|id| !used.contains(id))
}

fn make_home(root: &Path, name: &str, uid: u32, gid: u32) -> io::Result<()> {
    let home = root.join("home").join(name);
    if home.exists() {
        return Ok(());
    }
    fs::create_dir_all(&home)?;
    chown(&home, Some(uid), Some(gid))
}

/// Where the image has `sudo`, the user may become root without a password.
fn allow_sudo(folder: &Path, name: &str) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    let file = folder.join(format!("90-{name}"));
    fs::write(&file, format!("{name} ALL=(ALL:ALL) NOPASSWD: ALL\n"))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o440))
}

/// An account file's content; one that isn't there is empty.
fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    // Non-blocking, so that a pipe put in the file's place cannot hold the agent for ever.
    let opened = OpenOptions::new().read(true).custom_flags(nonblocking()).open(path);
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(text),
        Err(error) => return Err(error).context(format!("cannot read {}", path.display())),
        Ok(file) => {
            let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
            read.with_context(|| format!("cannot read {}", path.display()))?;
        }
    }
    if text.len() as u64 > FILE_BYTES_MAX {
        bail!("{} is larger than {FILE_BYTES_MAX} bytes", path.display());
    }
    Ok(text)
}

/// Adds a line to a file whose present content is known.
fn append(path: &Path, present: &str, line: &str) -> Result<()> {
    let gap = if present.is_empty() || present.ends_with('\n') { "" } else { "\n" };
    let opened =
        OpenOptions::new().append(true).create(true).custom_flags(nonblocking()).open(path);
    opened
        .and_then(|mut file| file.write_all(format!("{gap}{line}\n").as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn under(root: &Path, path: &str) -> std::path::PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// `O_NONBLOCK` of every Linux this is built for.
const fn nonblocking() -> i32 {
    0o4000
}

#[cfg(test)]
mod tests;
