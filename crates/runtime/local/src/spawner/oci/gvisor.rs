//! What is different with gVisor's `runsc`.
//!
//! It takes nothing but the standard streams into a sandbox, and no network namespace that is not
//! its own. So it runs in the sandbox's groups and network namespace from its first moment, reads
//! and writes the files as root, and the agent gets its configuration as standard input, its log
//! ring as standard output and a port instead of a socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::config::Places;
use super::{LOG_FILE, WORDS_MAX};
use crate::net::Cable;
use crate::protocol::{CgroupDirs, Launch};
use crate::spawner::child::{CAPABILITY_NAMES, join_v1_groups};
use crate::spawner::launch::Held;
use crate::spawner::rootfs::Context;
use crate::sys::process;

/// How it is run: the network of the namespace it is in, the groups it is in, and every change
/// of a file at once in the sandbox's own layer, where volumes, snapshots and the host see it.
const FLAGS: [&str; 4] =
    ["--network=host", "--ignore-cgroups", "--overlay2=none", "--file-access=shared"];

/// In a process of its own: becomes `runsc`, whose end and exit code are the sandbox's. Returns
/// only when that failed.
pub(super) fn exec(
    mut command: Command,
    launch: &Launch,
    cable: &Cable,
    agent_config: OwnedFd,
    log: &OwnedFd,
) -> io::Result<()> {
    join_v1_groups(launch)?;
    process::join(cable.namespace.as_fd(), libc::CLONE_NEWNET).context(|| "network".into())?;
    process::limit(libc::RLIMIT_CORE, 0).context(|| "core limit".into())?;
    command
        .args(FLAGS)
        .arg("--log")
        .arg(launch.dir.join(LOG_FILE))
        .args(["run", "--bundle"])
        .arg(&launch.dir)
        .arg(&launch.id)
        .stdin(agent_config)
        .stdout(log.try_clone()?);
    Err(command.exec())
}

/// What the program said about a sandbox whose agent said nothing: why it did not start.
pub(in crate::spawner) fn complaint(held: &Held) -> Vec<u8> {
    let words = std::fs::read(held.file(LOG_FILE)).unwrap_or_default();
    words[words.len().saturating_sub(WORDS_MAX)..].to_vec()
}

/// The bundle's `config.json`. Devices, `/proc`, the system-call filter and the hiding of the host
/// are gVisor's own.
pub(super) fn render(launch: &Launch, places: &Places) -> Vec<u8> {
    let shm = format!("size={}", launch.shm_bytes);
    let mut mounts = vec![
        json!({ "destination": "/proc", "type": "proc", "source": "proc" }),
        json!({ "destination": "/sys", "type": "sysfs", "source": "sysfs",
            "options": ["ro", "nosuid", "noexec", "nodev"] }),
        json!({ "destination": "/dev/shm", "type": "tmpfs", "source": "shm",
            "options": ["nosuid", "noexec", "nodev", "mode=1777", shm] }),
        json!({ "destination": places.agent_inside, "type": "bind", "source": places.agent,
            "options": ["bind", "ro", "nosuid", "nodev"] }),
    ];
    // It covers an empty `/tmp` with memory of its own unless told what belongs there; snapshots
    // would miss that.
    let temporary = places.root.join("tmp");
    if std::fs::symlink_metadata(&temporary).is_ok_and(|found| found.is_dir()) {
        mounts.push(json!({ "destination": "/tmp", "type": "bind", "source": temporary,
            "options": ["rbind", "rw"] }));
    }
    mounts.extend(groups(&launch.cgroups));
    let config = json!({
        "ociVersion": "1.0.2",
        "hostname": launch.hostname,
        "root": { "path": places.root, "readonly": false },
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": [places.agent_inside, "--stdio"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "noNewPrivileges": false,
            "capabilities": {
                "bounding": CAPABILITY_NAMES,
                "effective": CAPABILITY_NAMES,
                "permitted": CAPABILITY_NAMES,
            },
        },
        "mounts": mounts,
        "linux": {
            "namespaces":
                [{ "type": "pid" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" }],
        },
    });
    serde_json::to_vec_pretty(&config).unwrap_or_default()
}

/// Shows the sandbox its own groups, to read: programs look there for their limits.
fn groups(dirs: &CgroupDirs) -> Vec<Value> {
    const PLACE: &str = "/sys/fs/cgroup";
    let show = |target: String, source: &Path| {
        json!({ "destination": target, "type": "bind", "source": source,
            "options": ["bind", "ro", "nosuid", "noexec", "nodev"] })
    };
    if let (Some(dir), true) = (&dirs.unified, dirs.v2_limits) {
        return vec![show(PLACE.to_owned(), dir)];
    }
    dirs.v1.iter().map(|(controller, dir)| show(format!("{PLACE}/{controller}"), dir)).collect()
}
