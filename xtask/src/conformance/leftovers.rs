//! What a stopped server without sandboxes must not leave: processes and mounts that name its
//! data folder.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The last processes may need a moment to go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until nothing names `data`, or says what does.
pub(super) fn none(data: &Path) -> Result<()> {
    let name = data.display().to_string();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found: Vec<String> = processes(&name).chain(mounts(&name)).collect();
        if found.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("{}", found.join("; "));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn processes(name: &str) -> impl Iterator<Item = String> + use<'_> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(name).then(|| format!("process {pid}: {line}"))
    })
}

fn mounts(name: &str) -> impl Iterator<Item = String> + use<'_> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let found: Vec<String> = table
        .lines()
        .filter(|line| line.contains(name))
        .map(|line| format!("mount {line}"))
        .collect();
    found.into_iter()
}
