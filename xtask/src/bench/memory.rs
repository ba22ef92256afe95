//! What idle sandboxes cost: the proportional memory of every process in their cgroups.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::atoll::Atoll;

/// Memory of held sandboxes and of the server that holds them.
pub(super) struct Memory {
    sandboxes: usize,
    processes: usize,
    sandboxes_kib: u64,
    server_kib: u64,
}

impl Memory {
    pub(super) fn per_sandbox_kib(&self) -> u64 {
        self.sandboxes_kib / (self.sandboxes as u64).max(1)
    }

    pub(super) fn line(&self) -> String {
        format!(
            "memory: {} KiB per idle sandbox (PSS of {} processes in {} sandboxes); server {} KiB",
            self.per_sandbox_kib(),
            self.processes,
            self.sandboxes,
            self.server_kib
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "sandboxes": self.sandboxes,
            "processes": self.processes,
            "pss_per_sandbox_kib": self.per_sandbox_kib(),
            "server_pss_kib": self.server_kib,
        })
    }
}

/// Holds `count` sandboxes, measures, and lets them go.
pub(super) fn measure(count: usize, atoll: &mut Atoll, server: u32) -> Result<Memory> {
    let ids = atoll.hold(count)?;
    let pids = pids_of(&ids);
    ensure!(pids.len() >= count, "only {} processes found for {count} sandboxes", pids.len());
    let memory = Memory {
        sandboxes: count,
        processes: pids.len(),
        sandboxes_kib: pids.iter().filter_map(|pid| pss_kib(*pid)).sum(),
        server_kib: pss_kib(server).context("can't read the server's memory")?,
    };
    atoll.remove_all()?;
    Ok(memory)
}

/// Processes whose cgroup names one of the sandboxes.
fn pids_of(ids: &[String]) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        ids.iter().any(|id| groups.contains(id.as_str()))
    })
    .collect()
}

fn pss_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse().ok()
}
