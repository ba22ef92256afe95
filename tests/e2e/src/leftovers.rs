//! What a stopped server without sandboxes must not leave on the machine: processes and mounts
//! that name its data folder, control groups and network links of its label.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
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
        let mut found = processes(&name);
        found.extend(mounts(&name));
        found.extend(groups(&label));
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

/// The word that the runtime derives from its folder, for names that are global to the machine.
fn label(data: &Path) -> String {
    let digest = Sha256::digest(data.as_os_str().as_encoded_bytes());
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn processes(name: &str) -> Vec<String> {
    let found = entries(Path::new("/proc")).into_iter().filter_map(|path| {
        let pid: u32 = path.file_name()?.to_str()?.parse().ok()?;
        let line = fs::read(path.join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(name).then(|| format!("process {pid}: {line}"))
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
    found.filter(|path| path.is_dir()).map(|path| format!("group {}", path.display())).collect()
}

fn links(label: &str) -> Vec<String> {
    let found = entries(Path::new(LINKS)).into_iter().map(|path| path.display().to_string());
    found.filter(|path| path.contains(label)).map(|path| format!("link {path}")).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}
