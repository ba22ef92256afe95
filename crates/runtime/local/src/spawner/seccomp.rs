//! The system call filter of every sandbox.
//!
//! Calls that reach outside a container's walls are refused, unknown (newer) calls don't exist,
//! and nothing can make namespaces: what a sandbox needs of those it was given. The kernel caches
//! the verdict of calls that are always allowed, so the length of the list costs nothing there.

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter,
};

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

/// The first number we know nothing of. (Numbers are the same on all architectures up there.)
const FIRST_UNKNOWN: u32 = 463;
/// 32-bit calls in disguise on x86-64.
const X32_BIT: u32 = 0x4000_0000;

/// Offsets in the kernel's `seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

const fn fail_with(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()
}

/// Every flag of `clone` and `unshare` that makes a namespace.
pub(super) const NAMESPACE_FLAGS: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// A table of calls, each by name (for OCI runtimes) and by number (for ourselves).
macro_rules! calls {
    ($($(#[$condition:meta])* $name:ident: $number:ident,)*) => {
        &[$($(#[$condition])* (stringify!($name), libc::$number)),*]
    };
}

/// Refused whatever the arguments: the host's clock, modules, swap, keys, raw tracing, mounts.
pub(super) const REFUSED: &[(&str, libc::c_long)] = calls![
    acct: SYS_acct,
    add_key: SYS_add_key,
    bpf: SYS_bpf,
    clock_adjtime: SYS_clock_adjtime,
    clock_settime: SYS_clock_settime,
    delete_module: SYS_delete_module,
    fanotify_init: SYS_fanotify_init,
    finit_module: SYS_finit_module,
    fsconfig: SYS_fsconfig,
    fsmount: SYS_fsmount,
    fsopen: SYS_fsopen,
    fspick: SYS_fspick,
    init_module: SYS_init_module,
    io_uring_enter: SYS_io_uring_enter,
    io_uring_register: SYS_io_uring_register,
    io_uring_setup: SYS_io_uring_setup,
    kexec_load: SYS_kexec_load,
    keyctl: SYS_keyctl,
    lookup_dcookie: SYS_lookup_dcookie,
    migrate_pages: SYS_migrate_pages,
    mount: SYS_mount,
    mount_setattr: SYS_mount_setattr,
    move_mount: SYS_move_mount,
    move_pages: SYS_move_pages,
    nfsservctl: SYS_nfsservctl,
    open_by_handle_at: SYS_open_by_handle_at,
    open_tree: SYS_open_tree,
    perf_event_open: SYS_perf_event_open,
    pivot_root: SYS_pivot_root,
    quotactl: SYS_quotactl,
    quotactl_fd: SYS_quotactl_fd,
    reboot: SYS_reboot,
    request_key: SYS_request_key,
    setdomainname: SYS_setdomainname,
    sethostname: SYS_sethostname,
    setns: SYS_setns,
    settimeofday: SYS_settimeofday,
    swapoff: SYS_swapoff,
    swapon: SYS_swapon,
    syslog: SYS_syslog,
    umount2: SYS_umount2,
    userfaultfd: SYS_userfaultfd,
    vhangup: SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    ioperm: SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    iopl: SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    kexec_file_load: SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    modify_ldt: SYS_modify_ldt,
];

/// Kinds of sockets that talk to a network or to oneself. Others reach the host's kernel or its
/// hypervisor, and asking for an unknown kind may load a module.
const SOCKETS: [i32; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
/// What may be asked of the kernel over netlink: interfaces and routes, and open sockets.
const NETLINK_PROTOCOLS: [i32; 2] = [libc::NETLINK_ROUTE, libc::NETLINK_INET_DIAG];
/// The ones that OCI runtimes are told to refuse: their rules can't say "all but".
pub(super) const REFUSED_SOCKETS: [i32; 4] =
    [libc::AF_VSOCK, libc::AF_ALG, libc::AF_PACKET, libc::AF_KEY];

/// Terminal requests that put words into another's mouth.
pub(super) const REFUSED_REQUESTS: &[u32] =
    &[0x5412 /* TIOCSTI */, 0x541C /* TIOCLINUX */];

/// The filter as the kernel wants it.
pub(crate) fn program() -> Vec<sock_filter> {
    let mut code = Vec::with_capacity(2 * REFUSED.len() + 40);
    code.extend([
        load(ARCHITECTURE),
        when(BPF_JEQ, ARCH, 1),
        verdict(libc::SECCOMP_RET_KILL_PROCESS),
    ]);
    code.push(load(NUMBER));
    for first in [X32_BIT, FIRST_UNKNOWN] {
        code.extend([unless(BPF_JGE, first, 1), verdict(fail_with(libc::ENOSYS))]);
    }
    // Its flags lie in memory where no filter can see them; libraries fall back to `clone`.
    code.extend([unless(BPF_JEQ, number(libc::SYS_clone3), 1), verdict(fail_with(libc::ENOSYS))]);
    for (_, call) in REFUSED {
        code.extend([unless(BPF_JEQ, number(*call), 1), verdict(fail_with(libc::EPERM))]);
    }
    let namespaces = NAMESPACE_FLAGS.iter().fold(0, |all, flag| all | flag.unsigned_abs());
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        by_argument(&mut code, call, 0, BPF_JSET, &[namespaces]);
    }
    sockets(&mut code);
    by_argument(&mut code, libc::SYS_ioctl, 1, BPF_JEQ, REFUSED_REQUESTS);
    code.push(verdict(libc::SECCOMP_RET_ALLOW));
    code
}

/// Refuses `call` when its argument passes `test` for any of `values`, and allows it otherwise.
fn by_argument(
    code: &mut Vec<sock_filter>,
    call: libc::c_long,
    index: u32,
    test: u32,
    values: &[u32],
) {
    let body = u8::try_from(2 * values.len() + 2).unwrap_or(u8::MAX);
    code.push(unless(BPF_JEQ, number(call), body));
    code.push(load(argument(index)));
    for value in values {
        code.extend([unless(test, *value, 1), verdict(fail_with(libc::EPERM))]);
    }
    code.push(verdict(libc::SECCOMP_RET_ALLOW));
}

/// Allows only some kinds of sockets.
fn sockets(code: &mut Vec<sock_filter>) {
    let allow =
        |value: i32| [unless(BPF_JEQ, value.unsigned_abs(), 1), verdict(libc::SECCOMP_RET_ALLOW)];
    let refuse = verdict(fail_with(libc::EAFNOSUPPORT));
    let mut body = vec![load(argument(0))];
    body.extend(SOCKETS.into_iter().flat_map(allow));
    body.extend([when(BPF_JEQ, libc::AF_NETLINK.unsigned_abs(), 1), refuse]);
    body.push(load(argument(2)));
    body.extend(NETLINK_PROTOCOLS.into_iter().flat_map(allow));
    body.push(refuse);
    let length = u8::try_from(body.len()).unwrap_or(u8::MAX);
    code.push(unless(BPF_JEQ, number(libc::SYS_socket), length));
    code.extend(body);
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

fn load(offset: u32) -> sock_filter {
    instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset)
}

/// Skips `count` instructions when the test holds.
fn when(test: u32, value: u32, count: u8) -> sock_filter {
    instruction(BPF_JMP | test | BPF_K, count, 0, value)
}

/// Skips `count` instructions when the test doesn't hold.
fn unless(test: u32, value: u32, count: u8) -> sock_filter {
    instruction(BPF_JMP | test | BPF_K, 0, count, value)
}

fn verdict(action: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, 0, 0, action)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or_default(), jt, jf, k }
}
