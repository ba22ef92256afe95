//! Processor and memory use, from the sandbox's cgroup where visible, else from `/proc`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

/// Samples closer together than this repeat the last percentage instead of measuring noise.
const SPACING_MIN: Duration = Duration::from_millis(100);
/// Version 1 writes "no limit" as a huge number; anything above this is none.
const LIMIT_BYTES_MAX: u64 = 1 << 50;

/// Resource use at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Processors available; fractions are possible under a quota.
    pub cpu_count: f64,
    /// Share of them in use since the last sample, 0 to 100.
    pub cpu_used_percent: f64,
    /// Memory available in bytes.
    pub memory_total: u64,
    /// Memory in use in bytes.
    pub memory_used: u64,
    /// Memory that holds cached file content, in bytes.
    pub memory_cache: u64,
    /// Size of the root's file system in bytes.
    pub disk_total: u64,
    /// How much of that is in use.
    pub disk_used: u64,
    /// When this was measured.
    pub at: SystemTime,
}

/// Measures against the previous measurement, so that no call has to wait.
#[derive(Debug)]
pub struct Meter {
    root: PathBuf,
    last: Mutex<(Instant, Duration, f64)>,
}

impl Meter {
    /// Takes the first measurement.
    pub fn start() -> Self {
        Self::at(Path::new("/"))
    }

    fn at(root: &Path) -> Self {
        let used = cpu_time(root).unwrap_or_default();
        Self { root: root.to_owned(), last: Mutex::new((Instant::now(), used, 0.0)) }
    }

    /// Measures now.
    pub fn sample(&self) -> Sample {
        let cpu_count = cpu_count(&self.root);
        let (memory_total, memory_used) = memory(&self.root);
        let cpu_used_percent = self.percent(cpu_count);
        let memory_cache = memory_cache(&self.root);
        let (disk_total, disk_used) = disk(&self.root);
        Sample {
            cpu_count,
            cpu_used_percent,
            memory_total,
            memory_used,
            memory_cache,
            disk_total,
            disk_used,
            at: SystemTime::now(),
        }
    }

    fn percent(&self, cpu_count: f64) -> f64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, used) = (Instant::now(), cpu_time(&self.root).unwrap_or_default());
        let elapsed = now - last.0;
        if elapsed >= SPACING_MIN {
            let busy = used.saturating_sub(last.1).as_secs_f64();
            let percent = 100.0 * busy / (elapsed.as_secs_f64() * cpu_count);
            *last = (now, used, percent.clamp(0.0, 100.0));
        }
        last.2
    }
}

fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok()
}

fn number(root: &Path, path: &str) -> Option<u64> {
    read(root, path)?.trim().parse().ok()
}

/// The value after a label at the start of a line.
fn labelled(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_whitespace().next()?.parse().ok()
}

fn cpu_time(root: &Path) -> Option<Duration> {
    let v2 = || {
        labelled(&read(root, "sys/fs/cgroup/cpu.stat")?, "usage_usec ").map(Duration::from_micros)
    };
    let v1 = || number(root, "sys/fs/cgroup/cpuacct/cpuacct.usage").map(Duration::from_nanos);
    v2().or_else(v1).or_else(|| host_cpu_time(&read(root, "proc/stat")?))
}

/// Busy time of all processors; the kernel counts in hundredths of a second.
fn host_cpu_time(stat: &str) -> Option<Duration> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let busy: u64 = ticks.iter().take(8).sum::<u64>() - ticks.iter().skip(3).take(2).sum::<u64>();
    Some(Duration::from_millis(busy * 10))
}

fn cpu_count(root: &Path) -> f64 {
    let online = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let v2 = || {
        let text = read(root, "sys/fs/cgroup/cpu.max")?;
        let (quota, period) = text.trim().split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    };
    let v1 = || {
        let quota = number(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us")?;
        Some(quota as f64 / number(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us")? as f64)
    };
    let quota = v2().or_else(v1).filter(|count| count.is_finite() && *count > 0.0);
    quota.map_or(online, |quota| quota.min(online))
}

/// Memory as (total, used), with the cgroup's limit where it is lower than the machine's.
fn memory(root: &Path) -> (u64, u64) {
    let info = read(root, "proc/meminfo").unwrap_or_default();
    let host = |label| labelled(&info, label).unwrap_or(0) * 1024;
    let host_total = host("MemTotal:");
    let limit = number(root, "sys/fs/cgroup/memory.max")
        .or_else(|| number(root, "sys/fs/cgroup/memory/memory.limit_in_bytes"))
        .filter(|limit| *limit < LIMIT_BYTES_MAX);
    let total = limit.map_or(host_total, |limit| limit.min(host_total));
    let used =
        cgroup_memory(root).unwrap_or_else(|| host_total.saturating_sub(host("MemAvailable:")));
    (total.max(1), used.clamp(1, total.max(1)))
}

/// Memory of the cgroup without the file cache that the kernel gives back first.
fn cgroup_memory(root: &Path) -> Option<u64> {
    let base = "sys/fs/cgroup";
    let (used, stat, cache) = match number(root, &format!("{base}/memory.current")) {
        Some(used) => (used, format!("{base}/memory.stat"), "inactive_file "),
        None => {
            let used = number(root, &format!("{base}/memory/memory.usage_in_bytes"))?;
            (used, format!("{base}/memory/memory.stat"), "total_inactive_file ")
        }
    };
    let cached = read(root, &stat).and_then(|text| labelled(&text, cache)).unwrap_or(0);
    Some(used.saturating_sub(cached))
}

/// File content in memory, of the cgroup where visible.
fn memory_cache(root: &Path) -> u64 {
    let labelled_in = |path: &str, label| labelled(&read(root, path)?, label);
    labelled_in("sys/fs/cgroup/memory.stat", "file ")
        .or_else(|| labelled_in("sys/fs/cgroup/memory/memory.stat", "total_cache "))
        .or_else(|| Some(labelled_in("proc/meminfo", "Cached:")? * 1024))
        .unwrap_or(0)
}

/// The root's file system as (total, used) bytes.
fn disk(root: &Path) -> (u64, u64) {
    let Ok(found) = rustix::fs::statvfs(root) else { return (0, 0) };
    let total = found.f_blocks.saturating_mul(found.f_frsize);
    (total, total.saturating_sub(found.f_bfree.saturating_mul(found.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal: 4096 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n");

    #[test]
    fn the_cgroup_limits_what_is_reported() {
        let v2 = root(&[
            MEMINFO,
            ("sys/fs/cgroup/memory.max", "1048576\n"),
            ("sys/fs/cgroup/memory.current", "600000\n"),
            ("sys/fs/cgroup/memory.stat", "anon 5\nfile 120000\ninactive_file 100000\n"),
            ("sys/fs/cgroup/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 1500000\nuser_usec 7\n"),
        ]);
        assert_eq!(memory(v2.path()), (1_048_576, 500_000));
        assert_eq!(memory_cache(v2.path()), 120_000);
        assert_eq!(cpu_count(v2.path()), 0.5);
        assert_eq!(cpu_time(v2.path()), Some(Duration::from_millis(1500)));
        let v1 = root(&[
            MEMINFO,
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "3000\n"),
            ("sys/fs/cgroup/cpuacct/cpuacct.usage", "2000000000\n"),
        ]);
        assert_eq!(memory(v1.path()), (4096 * 1024, 3000));
        assert_eq!(cpu_time(v1.path()), Some(Duration::from_secs(2)));
    }

    #[test]
    fn without_a_cgroup_the_machine_is_reported() {
        let plain = root(&[MEMINFO, ("proc/stat", "cpu  10 0 20 900 5 0 0 0 0 0\ncpu0 1\n")]);
        assert_eq!(memory(plain.path()), (4096 * 1024, 3072 * 1024));
        assert_eq!(cpu_time(plain.path()), Some(Duration::from_millis(300)));
    }

    #[test]
    fn a_live_sample_is_within_bounds() {
        let sample = Meter::start().sample();
        assert!(sample.cpu_count > 0.0);
        assert!((0.0..=100.0).contains(&sample.cpu_used_percent));
        assert!(0 < sample.memory_used && sample.memory_used <= sample.memory_total);
        assert!(sample.disk_used <= sample.disk_total);
    }
}
