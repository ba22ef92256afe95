//! What a stopped server without sandboxes must not leave on the machine: processes and mounts
//! that name its data folder, control groups and network links of its label.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};

/// The last processes may need a moment to go.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const GROUPS: &str = "/sys/fs/cgroup";
const LINKS: &str = "/sys/class/net";

/// Waits until nothing is left of the server that kept its data in `data`, or says what is.
pub fn none(data: &Path) -> Result<()> {
    let data = data.canonicalize().context("the server has made no data folder")?;
    let name = data.display().to_string();
    let label = label(&data);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut found: Vec<String> = processes(&name)
            .into_iter()
            .map(|(pid, line)| format!("process {pid}: {line}"))
            .collect();
        found.extend(mounts(&name));
        found.extend(groups(&label).iter().map(|group| format!("group {group}")));
        found.extend(links(&label));
        if found.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("{}", found.join("; "));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Ends everything that a failed test left of a server, so that it doesn't outlive the test.
pub fn sweep(data: &Path) {
    let Ok(data) = data.canonicalize() else { return };
    let groups = groups(&label(&data));
    for group in groups.iter().flat_map(|group| entries(Path::new(group))) {
        // Only the unified tree can kill; elsewhere there is no such file.
        fs::write(group.join("cgroup.kill"), "1").ok();
    }
    for pid in processes(&data.display().to_string()).into_iter().map(|(pid, _)| pid) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::KILL).ok();
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline && !groups.iter().all(|group| remove_group(Path::new(group))) {
        std::thread::sleep(LOOK_EVERY);
    }
}

fn remove_group(group: &Path) -> bool {
    for child in entries(group).into_iter().filter(|path| path.is_dir()) {
        fs::remove_dir(child).ok();
    }
    fs::remove_dir(group).is_ok() || !group.exists()
}

/// The word that the runtime derives from its folder, for names that are global to the machine.
fn label(data: &Path) -> String {
    let digest = Sha256::digest(data.as_os_str().as_encoded_bytes());
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn processes(name: &str) -> Vec<(u32, String)> {
    let found = entries(Path::new("/proc")).into_iter().filter_map(|path| {
        let pid: u32 = path.file_name()?.to_str()?.parse().ok()?;
        let line = fs::read(path.join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(name).then_some((pid, line))
    });
    found.collect()
}

fn mounts(name: &str) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let found = table.lines().filter(|line| line.contains(name));
    found.map(|line| format!("mount {line}")).collect()
}

/// In the unified tree itself, and in every hierarchy mounted below it.
fn groups(label: &str) -> Vec<String> {
    let name = format!("atoll-{label}");
    let root = PathBuf::from(GROUPS);
    let found = entries(&root).into_iter().chain([root]).map(|folder| folder.join(&name));
    found.filter(|path| path.is_dir()).map(|path| path.display().to_string()).collect()
}

fn links(label: &str) -> Vec<String> {
    let found = entries(Path::new(LINKS)).into_iter().map(|path| path.display().to_string());
    found.filter(|path| path.contains(label)).map(|path| format!("link {path}")).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}
