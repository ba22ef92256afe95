//! What the first process of a sandbox does between its birth and becoming the agent.
//!
//! It is born in new mount, process, host name and message namespaces that belong to the host's
//! user namespace. It builds its files, enters them, and only then steps down into its own user
//! namespace: from there nothing it or its descendants do can change a mount or an address.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::bootid;
use super::rootfs::{self, Context};
use crate::protocol::{Launch, files};
use crate::sys::mount::{self, Attributes, Filesystem};
use crate::sys::{self, process};

/// Numbers the agent expects its descriptors at.
pub(super) const SOCKET_FD: i32 = 3;
pub(super) const CONFIG_FD: i32 = 4;
pub(super) const LOG_FD: i32 = 5;
/// Everything else is out of the way of those.
const FIRST_FREE_FD: i32 = 16;

/// What root inside may do to its own processes and files; nothing that reaches the machine.
/// Names and numbers, in the same order.
pub(super) const CAPABILITY_NAMES: [&str; 12] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_AUDIT_WRITE",
    "CAP_SETFCAP",
];
const CAPABILITIES: [u32; 12] = [0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 29, 31];

/// Devices every program expects.
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// Hidden, because they tell about the host or its other tenants.
pub(super) const HIDDEN: [&str; 11] = [
    "proc/acpi",
    "proc/asound",
    "proc/interrupts",
    "proc/kcore",
    "proc/keys",
    "proc/latency_stats",
    "proc/sched_debug",
    "proc/scsi",
    "proc/timer_list",
    "sys/devices/virtual/powercap",
    "sys/firmware",
];

/// Readable only.
pub(super) const READ_ONLY: [&str; 5] =
    ["proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger"];

/// What the parent prepared.
pub(super) struct Prepared {
    pub(super) ids: OwnedFd,
    pub(super) first_id: u32,
    pub(super) network: Option<OwnedFd>,
    pub(super) socket: OwnedFd,
    pub(super) config: OwnedFd,
    pub(super) log: OwnedFd,
    pub(super) filter: Vec<libc::sock_filter>,
}

/// Builds the sandbox and becomes its agent. Returns only when that failed.
pub(super) fn become_sandbox(launch: &Launch, prepared: &Prepared) -> io::Error {
    match build(launch, prepared) {
        Ok(agent) => {
            let error = process::exec(agent.as_fd(), &[c"atoll-agent"]);
            io::Error::new(error.kind(), format!("running the agent: {error}"))
        }
        Err(error) => error,
    }
}

fn build(launch: &Launch, prepared: &Prepared) -> io::Result<OwnedFd> {
    process::new_session().context(|| "session".into())?;
    join_v1_groups(launch)?;
    if let Some(network) = &prepared.network {
        process::join(network.as_fd(), libc::CLONE_NEWNET).context(|| "network".into())?;
    }
    mount::make_all_private().context(|| "private mounts".into())?;
    let agent = agent_program(&launch.agent)?;
    let top = launch.dir.join(files::ROOT);
    let (first_id, ids) = (prepared.first_id, Some(prepared.ids.as_fd()));
    rootfs::mount_roots(&launch.dir, &top, &launch.roots, first_id, ids)?;
    populate(&top, launch, prepared)?;
    std::env::set_current_dir(&top).context(|| "entering the new root".into())?;
    mount::pivot_here().context(|| "entering the files".into())?;
    process::set_hostname(&launch.hostname).context(|| "host name".into())?;
    process::unshare(libc::CLONE_NEWCGROUP).context(|| "control group namespace".into())?;
    process::join(prepared.ids.as_fd(), libc::CLONE_NEWUSER).context(|| "user namespace".into())?;
    process::become_root().context(|| "becoming root inside".into())?;
    hand_over(prepared).context(|| "descriptors".into())?;
    process::limit(libc::RLIMIT_CORE, 0).context(|| "core limit".into())?;
    process::default_signals();
    process::block_signals(false)?;
    // The filter needs a capability that the next line gives up.
    process::install_filter(&prepared.filter).context(|| "system call filter".into())?;
    process::keep_capabilities(&CAPABILITIES).context(|| "capabilities".into())?;
    Ok(agent)
}

pub(super) fn join_v1_groups(launch: &Launch) -> io::Result<()> {
    for dir in launch.cgroups.v1.values() {
        // Not `cgroup.procs`: moving a whole process waits for every processor to pass a quiet
        // moment (milliseconds); moving only the calling thread, here the same thing, doesn't.
        let file = dir.join("tasks");
        std::fs::write(&file, "0").context(|| format!("joining {}", file.display()))?;
    }
    Ok(())
}

/// The agent, through a mount that nobody can write: root inside finds it at `/proc/1/exe`.
fn agent_program(path: &Path) -> io::Result<OwnedFd> {
    let doing = || format!("opening the agent {}", path.display());
    let tree = mount::clone_tree(path, false).context(doing)?;
    let set = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    mount::set_attributes(tree.as_fd(), Attributes { set, id_map: None }, false).context(doing)?;
    sys::duplicate_above(tree.as_fd(), FIRST_FREE_FD)
}

/// Everything that is mounted into the image's tree.
fn populate(top: &Path, launch: &Launch, prepared: &Prepared) -> io::Result<()> {
    let root = sys::open_path(top)?;
    process::as_file_owner(prepared.first_id, || {
        for folder in ["proc", "sys", "dev"] {
            let folder = Path::new(folder);
            rootfs::make_folder(root.as_fd(), folder, false)
                .and_then(|_| sys::open_no_link(root.as_fd(), folder, libc::O_PATH))
                .context(|| format!("the image's folder {}", folder.display()))?;
        }
        rootfs::write_files(root.as_fd(), launch.files.iter())
    })?;
    attach_new(Filesystem::open(c"proc")?, &top.join("proc"), NO_PROGRAMS)
        .context(|| "proc".into())?;
    let sysfs = Filesystem::open(c"sysfs")?;
    attach_new(sysfs, &top.join("sys"), NO_PROGRAMS | libc::MOUNT_ATTR_RDONLY)
        .context(|| "sysfs".into())?;
    show_groups(top, launch, prepared)?;
    devices(top, prepared.first_id, launch.shm_bytes).context(|| "devices".into())?;
    hide(top)?;
    let boot_id = launch.dir.join(files::BOOT_ID);
    bootid::cover(top, &boot_id, prepared.ids.as_fd()).context(|| "boot_id".into())?;
    // Last: other sandboxes may be changing these folders, so no path may lead through them.
    for bind in &launch.mounts {
        rootfs::bind(top, bind, prepared.first_id, Some(prepared.ids.as_fd()))?;
    }
    Ok(())
}

const NO_PROGRAMS: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;

fn attach_new(filesystem: Filesystem, target: &Path, attributes: u64) -> io::Result<()> {
    mount::attach(filesystem.mount(attributes)?.as_fd(), target)
}

/// A memory filesystem whose root belongs to root inside.
fn memory(first_id: u32, mode: &[u8], size: u64) -> io::Result<Filesystem> {
    let filesystem = Filesystem::open(c"tmpfs")?;
    filesystem.set(c"mode", mode)?;
    filesystem.set(c"size", size.to_string().as_bytes())?;
    filesystem.set(c"uid", first_id.to_string().as_bytes())?;
    filesystem.set(c"gid", first_id.to_string().as_bytes())?;
    Ok(filesystem)
}

fn devices(top: &Path, first_id: u32, shm_bytes: u64) -> io::Result<()> {
    /// The group `tty` of every distribution.
    const TTY_GROUP: u32 = 5;
    let dev = top.join("dev");
    attach_new(memory(first_id, b"755", 65_536)?, &dev, libc::MOUNT_ATTR_NOSUID)?;
    for (name, major, minor) in DEVICES {
        let path = dev.join(name);
        mount::make_device(&path, 0o666, major, minor)?;
        std::os::unix::fs::lchown(&path, Some(first_id), Some(first_id))?;
        // The process's file mode mask applies to the call above.
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    }
    let links = [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ];
    for (name, target) in links {
        std::os::unix::fs::symlink(target, dev.join(name))?;
    }
    for folder in ["pts", "shm", "mqueue"] {
        std::fs::create_dir(dev.join(folder))?;
    }
    let terminals = Filesystem::open(c"devpts")?;
    terminals.set(c"ptmxmode", b"0666")?;
    terminals.set(c"mode", b"0620")?;
    terminals.set(c"gid", (first_id + TTY_GROUP).to_string().as_bytes())?;
    attach_new(terminals, &dev.join("pts"), libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)?;
    let shared = memory(first_id, b"1777", shm_bytes)?;
    attach_new(shared, &dev.join("shm"), libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)
}

/// Shows the sandbox its own groups, to read: programs look there for their limits.
fn show_groups(top: &Path, launch: &Launch, prepared: &Prepared) -> io::Result<()> {
    let place = top.join("sys/fs/cgroup");
    let show = |source: &Path, target: &Path| -> io::Result<()> {
        let tree = mount::clone_tree(source, false)?;
        let set = NO_PROGRAMS | libc::MOUNT_ATTR_RDONLY;
        mount::set_attributes(tree.as_fd(), Attributes { set, id_map: None }, false)?;
        mount::attach(tree.as_fd(), target)
    };
    if !place.is_dir() {
        return Ok(());
    }
    if let (Some(dir), true) = (&launch.cgroups.unified, launch.cgroups.v2_limits) {
        return show(dir, &place).context(|| "showing the control group".into());
    }
    attach_new(memory(prepared.first_id, b"755", 65_536)?, &place, NO_PROGRAMS)?;
    for (controller, dir) in &launch.cgroups.v1 {
        let target = place.join(controller);
        std::fs::create_dir(&target)?;
        show(dir, &target).context(|| format!("showing the control group {controller}"))?;
    }
    Ok(())
}

/// Covers what tells about the host. What this kernel doesn't have needs no cover.
fn hide(top: &Path) -> io::Result<()> {
    let null = top.join("dev/null");
    for path in HIDDEN {
        let path = top.join(path);
        let Ok(found) = std::fs::metadata(&path) else { continue };
        if found.is_dir() {
            let empty = memory(0, b"555", 4096)?;
            attach_new(empty, &path, NO_PROGRAMS | libc::MOUNT_ATTR_RDONLY)?;
        } else {
            mount::attach(mount::clone_tree(&null, false)?.as_fd(), &path)?;
        }
    }
    for path in READ_ONLY {
        let path = top.join(path);
        if path.exists() {
            let tree = mount::clone_tree(&path, true)?;
            let set = libc::MOUNT_ATTR_RDONLY;
            mount::set_attributes(tree.as_fd(), Attributes { set, id_map: None }, true)?;
            mount::attach(tree.as_fd(), &path)?;
        }
    }
    Ok(())
}

/// Puts the descriptors where the agent expects them and lets every other close.
fn hand_over(prepared: &Prepared) -> io::Result<()> {
    // Above the fixed numbers first, so that none overwrites another.
    let above = |fd: &OwnedFd| sys::duplicate_above(fd.as_fd(), FIRST_FREE_FD);
    let (socket, config, log) =
        (above(&prepared.socket)?, above(&prepared.config)?, above(&prepared.log)?);
    let null: OwnedFd = File::options().read(true).write(true).open("/dev/null")?.into();
    let null = above(&null)?;
    sys::close_on_exec_from(3)?;
    for fd in 0..=2 {
        sys::inherit_as(null.as_fd(), fd)?;
    }
    sys::inherit_as(socket.as_fd(), SOCKET_FD)?;
    sys::inherit_as(config.as_fd(), CONFIG_FD)?;
    sys::inherit_as(log.as_fd(), LOG_FD)
}
