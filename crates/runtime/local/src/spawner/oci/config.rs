//! The OCI description of a sandbox.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::protocol::{Launch, Launcher};
use crate::spawner::child::{CAPABILITY_NAMES, HIDDEN, READ_ONLY};
use crate::spawner::identity::IDS_EACH;
use crate::spawner::seccomp;

/// Length of a processor quota's period.
const PERIOD_MICROS: u64 = 100_000;

/// Where the program finds things.
pub(super) struct Places {
    pub(super) root: PathBuf,
    pub(super) agent: PathBuf,
    pub(super) agent_inside: &'static str,
}

/// The bundle's `config.json`.
pub(super) fn render(
    launch: &Launch,
    first_id: u32,
    network: &OwnedFd,
    places: &Places,
) -> Vec<u8> {
    let ids = json!([{ "containerID": 0, "hostID": first_id, "size": IDS_EACH }]);
    // The program is a descendant of this process, which keeps the descriptor open.
    let network = format!("/proc/{}/fd/{}", std::process::id(), network.as_raw_fd());
    // The bind of `/sys` shows the host's control groups, which belong to everybody.
    let hidden = HIDDEN.iter().chain(&["sys/fs/cgroup"]);
    let hidden: Vec<String> = hidden.map(|path| format!("/{path}")).collect();
    let read_only: Vec<String> = READ_ONLY.iter().map(|path| format!("/{path}")).collect();
    let config = json!({
        "ociVersion": "1.0.2",
        "hostname": launch.hostname,
        "root": { "path": places.root, "readonly": false },
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": [places.agent_inside],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "noNewPrivileges": false,
            "capabilities": {
                "bounding": CAPABILITY_NAMES,
                "effective": CAPABILITY_NAMES,
                "permitted": CAPABILITY_NAMES,
            },
        },
        "mounts": mounts(launch, places),
        "linux": {
            "uidMappings": ids,
            "gidMappings": ids,
            "cgroupsPath": launch.cgroups.oci_path,
            "resources": resources(&launch.launcher),
            "namespaces": [
                { "type": "pid" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" },
                { "type": "user" }, { "type": "cgroup" }, { "type": "network", "path": network },
            ],
            "maskedPaths": hidden,
            "readonlyPaths": read_only,
            "seccomp": filter(),
        },
    });
    serde_json::to_vec_pretty(&config).unwrap_or_default()
}

fn mounts(launch: &Launch, places: &Places) -> Value {
    let shm = format!("size={}", launch.shm_bytes);
    json!([
        { "destination": "/proc", "type": "proc", "source": "proc",
          "options": ["nosuid", "noexec", "nodev"] },
        { "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
          "options": ["nosuid", "mode=755", "size=65536k"] },
        { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
          "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"] },
        { "destination": "/dev/shm", "type": "tmpfs", "source": "shm",
          "options": ["nosuid", "noexec", "nodev", "mode=1777", shm] },
        // The network belongs to the host's user namespace, so a fresh sysfs is not allowed.
        { "destination": "/sys", "type": "bind", "source": "/sys",
          "options": ["rbind", "ro", "nosuid", "noexec", "nodev"] },
        { "destination": places.agent_inside, "type": "bind", "source": places.agent,
          "options": ["bind", "ro", "nosuid", "nodev"] },
    ])
}

fn resources(launcher: &Launcher) -> Value {
    let Launcher::Oci { memory_bytes, cpu_millis, pids, .. } = launcher else { return json!({}) };
    let mut resources = json!({ "devices": [{ "allow": false, "access": "rwm" }] });
    if let Some(bytes) = memory_bytes {
        resources["memory"] = json!({ "limit": bytes });
    }
    if let Some(millis) = cpu_millis {
        let quota = (millis * PERIOD_MICROS / 1000).max(1000);
        resources["cpu"] = json!({ "quota": quota, "period": PERIOD_MICROS });
    }
    if let Some(pids) = pids {
        resources["pids"] = json!({ "limit": pids });
    }
    resources
}

/// The same list of refused calls as our own filter has.
fn filter() -> Value {
    let names: Vec<&str> = seccomp::REFUSED.iter().map(|(name, _)| *name).collect();
    // Each flag on its own: a rule matches when that one bit is set.
    let by_flag = seccomp::NAMESPACE_FLAGS.iter().flat_map(|flag| {
        ["clone", "unshare"].map(|call| {
            json!({ "names": [call], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::EPERM, "args":
                [{ "index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ" }] })
        })
    });
    let by_value = |call: &'static str, index: u32, values: &[u32]| -> Vec<Value> {
        let rule = |value: &u32| {
            json!({ "names": [call], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::EPERM, "args":
                [{ "index": index, "value": value, "op": "SCMP_CMP_EQ" }] })
        };
        values.iter().map(rule).collect()
    };
    let mut rules = vec![
        json!({ "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": libc::EPERM }),
        json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS }),
    ];
    rules.extend(by_flag);
    rules.extend(by_value("socket", 0, &seccomp::REFUSED_SOCKETS.map(i32::unsigned_abs)));
    rules.extend(by_value("ioctl", 1, seccomp::REFUSED_REQUESTS));
    json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules })
}
