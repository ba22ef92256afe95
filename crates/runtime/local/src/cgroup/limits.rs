//! Limits and counters, in the words of v2 and of v1.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_core::Resources;

use super::{Counted, Layout, read, write};

/// Length of a processor quota's period.
const PERIOD_MICROS: u64 = 100_000;
/// The kernel refuses shorter quotas.
const QUOTA_MICROS_MIN: u64 = 1000;

/// Lets children of `dir` have limits.
pub(super) fn enable_controllers(dir: &Path) -> io::Result<()> {
    write(&dir.join("cgroup.subtree_control"), "+cpu +memory +pids")
}

/// Bounds all sandboxes together, so that the host itself is left with something: a tenth of its
/// memory and a fifth of its process numbers.
pub(super) fn apply_to_all(layout: &Layout, parent: &str) -> io::Result<()> {
    let memory = field_kib("/proc/meminfo", "MemTotal:") / 10 * 9 * 1024;
    let pids = number(Path::new("/proc/sys/kernel/pid_max")) / 5 * 4;
    let bounds = Resources {
        cpu_millis: None,
        memory_bytes: (memory > 0).then_some(memory),
        pids: (pids > 0).then_some(pids),
    };
    apply(layout, "", parent, bounds)?;
    // Together they weigh as much as the machine has processors, each as one ordinary program.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match layout.v1.get("cpu") {
        Some(root) => write(&root.join(parent).join("cpu.shares"), &(1024 * cores).to_string()),
        None => Ok(()),
    }
}

pub(super) fn apply(
    layout: &Layout,
    parent: &str,
    name: &str,
    resources: Resources,
) -> io::Result<()> {
    let quota = resources.cpu_millis.map(|m| (m * PERIOD_MICROS / 1000).max(QUOTA_MICROS_MIN));
    if let (Some(root), true) = (&layout.unified, layout.v2_limits) {
        let dir = root.join(parent).join(name);
        if let Some(quota) = quota {
            write(&dir.join("cpu.max"), &format!("{quota} {PERIOD_MICROS}"))?;
        }
        if let Some(bytes) = resources.memory_bytes {
            write(&dir.join("memory.max"), &bytes.to_string())?;
            write_if_there(&dir.join("memory.swap.max"), "0")?;
        }
        if let Some(pids) = resources.pids {
            write(&dir.join("pids.max"), &pids.to_string())?;
        }
        return Ok(());
    }
    let dir = |controller: &str| layout.v1.get(controller).map(|r| r.join(parent).join(name));
    if let (Some(quota), Some(dir)) = (quota, dir("cpu")) {
        write(&dir.join("cpu.cfs_period_us"), &PERIOD_MICROS.to_string())?;
        write(&dir.join("cpu.cfs_quota_us"), &quota.to_string())?;
    }
    if let (Some(bytes), Some(dir)) = (resources.memory_bytes, dir("memory")) {
        write(&dir.join("memory.limit_in_bytes"), &bytes.to_string())?;
        write_if_there(&dir.join("memory.memsw.limit_in_bytes"), &bytes.to_string())?;
    }
    if let (Some(pids), Some(dir)) = (resources.pids, dir("pids")) {
        write(&dir.join("pids.max"), &pids.to_string())?;
    }
    Ok(())
}

pub(super) fn counted(layout: &Layout, parent: &str, name: &str) -> Counted {
    if let (Some(root), true) = (&layout.unified, layout.v2_limits) {
        let dir = root.join(parent).join(name);
        return Counted {
            cpu: Duration::from_micros(field(&dir.join("cpu.stat"), "usage_usec")),
            memory_bytes: number(&dir.join("memory.current")),
            cache_bytes: file_pages(&dir.join("memory.stat"), ""),
            memory_limit_bytes: number(&dir.join("memory.max")),
            cpu_limit_millis: quota_v2(&read(&dir.join("cpu.max")).unwrap_or_default()),
            pids: number(&dir.join("pids.current")),
            oom_kills: field(&dir.join("memory.events"), "oom_kill"),
        };
    }
    let file = |controller: &str, file: &str| -> PathBuf {
        let root = layout.v1.get(controller).cloned().unwrap_or_default();
        root.join(parent).join(name).join(file)
    };
    // A v2 group counts processor time even where it can't limit it.
    let cpu = match &layout.unified {
        Some(root) => {
            let stat = root.join(parent).join(name).join("cpu.stat");
            Duration::from_micros(field(&stat, "usage_usec"))
        }
        None => Duration::from_nanos(number(&file("cpu", "cpuacct.usage"))),
    };
    Counted {
        cpu,
        memory_bytes: number(&file("memory", "memory.usage_in_bytes")),
        cache_bytes: file_pages(&file("memory", "memory.stat"), "total_"),
        memory_limit_bytes: bounded(number(&file("memory", "memory.limit_in_bytes"))),
        // No quota is -1, which is no number here.
        cpu_limit_millis: millis(
            number(&file("cpu", "cpu.cfs_quota_us")),
            number(&file("cpu", "cpu.cfs_period_us")),
        ),
        pids: number(&file("pids", "pids.current")),
        oom_kills: field(&file("memory", "memory.oom_control"), "oom_kill"),
    }
}

/// Bytes of file pages that a group has, whether used lately or not.
fn file_pages(stat: &Path, prefix: &str) -> u64 {
    let text = read(stat).unwrap_or_default();
    let pages = |kind: &str| value_of(&text, &format!("{prefix}{kind}_file"));
    pages("active").saturating_add(pages("inactive"))
}

/// v1 says "no limit" with a number larger than any memory.
fn bounded(bytes: u64) -> u64 {
    const UNLIMITED: u64 = 1 << 62;
    if bytes >= UNLIMITED { 0 } else { bytes }
}

/// The limit in `quota period`, where the quota may be `max`.
pub(super) fn quota_v2(text: &str) -> u64 {
    let mut words = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
    millis(words.next().unwrap_or(0), words.next().unwrap_or(0))
}

fn millis(quota: u64, period: u64) -> u64 {
    (quota * 1000).checked_div(period).unwrap_or(0)
}

/// A value in kibibytes after `key` in a file of `key  value kB` lines.
fn field_kib(file: &str, key: &str) -> u64 {
    let text = read(Path::new(file)).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(key));
    value.and_then(|v| v.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Hosts without swap accounting don't have the file; then there is nothing to limit.
fn write_if_there(file: &Path, value: &str) -> io::Result<()> {
    if file.exists() { write(file, value) } else { Ok(()) }
}

/// A counter that isn't there counts nothing.
fn number(file: &Path) -> u64 {
    read(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// The value after `key` in a file of `key value` lines.
fn field(file: &Path, key: &str) -> u64 {
    value_of(&read(file).unwrap_or_default(), key)
}

fn value_of(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value.and_then(|v| v.trim().parse().ok()).unwrap_or(0)
}
