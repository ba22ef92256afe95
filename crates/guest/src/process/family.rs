//! The processes that belong to one shell, found in `/proc`.

use crate::sys;
use std::{
    collections::{HashMap, HashSet},
    fs,
};

/// Looks at the process table while processes that are being killed still start new ones.
const ROUNDS_MAX: usize = 8;

/// One line of the process table.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    started_ticks: u64,
}

/// Signals the processes of `leader`'s group and descent that started at `since_ticks` or later;
/// never the leader itself. Blocks; answers how many there were.
pub(crate) fn signal_since(leader: i32, since_ticks: u64, signal: i32) -> usize {
    let members = members(&table(), leader, since_ticks);
    for pid in &members {
        // It may have ended since it was listed.
        sys::signal_process(*pid, signal).ok();
    }
    members.len()
}

/// Kills the same processes, and what they start meanwhile.
pub(crate) fn kill_since(leader: i32, since_ticks: u64) {
    for _ in 0..ROUNDS_MAX {
        if signal_since(leader, since_ticks, libc::SIGKILL) == 0 {
            return;
        }
    }
}

fn table() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// Reads `/proc/PID/stat`; nothing for a process that has already ended.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    // The name in parentheses may itself hold spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let started_ticks = fields.nth(16)?.parse().ok()?;
    Some(Process { pid, parent, group, started_ticks })
}

fn members(table: &[Process], leader: i32, since_ticks: u64) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for process in table {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let (mut family, mut queue) = (HashSet::new(), vec![leader]);
    while let Some(pid) = queue.pop() {
        // A table that changed while it was read could hold a circle.
        if family.insert(pid) {
            queue.extend(children.get(&pid).into_iter().flatten());
        }
    }
    let belongs = |process: &&Process| {
        let related = process.group == leader || family.contains(&process.pid);
        related && process.pid != leader && process.started_ticks >= since_ticks
    };
    table.iter().filter(belongs).map(|process| process.pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let tail = "1 10 10 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        let want = Process { pid: 5, parent: 1, group: 10, started_ticks: 777 };
        assert_eq!(parse(5, &format!("5 (a) b (c) S {tail}")), Some(want));
        assert_eq!(parse(5, &format!("5 (a) Z {tail}")), None);
        assert_eq!(parse(5, "5 (a"), None);
        let own = std::process::id() as i32;
        assert!(table().iter().any(|process| process.pid == own));
    }

    #[test]
    fn a_family_is_group_and_descent_since_a_moment() {
        let process =
            |pid, parent, group, started_ticks| Process { pid, parent, group, started_ticks };
        let table = [
            process(10, 1, 10, 50),
            process(11, 10, 10, 60),
            process(12, 10, 10, 99),
            process(13, 12, 13, 100),
            process(14, 1, 10, 100),
            process(15, 1, 15, 100),
            process(16, 16, 16, 100),
        ];
        assert_eq!(members(&table, 10, 90), [12, 13, 14]);
        assert_eq!(members(&table, 10, 0), [11, 12, 13, 14]);
    }
}
