//! Processes, namespaces, capabilities and filters.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{checked, checked_long, owned};

/// `CLONE_INTO_CGROUP`; libc's constant of that name overflows its type and is zero.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Which side of a fork this is.
pub(crate) enum Forked {
    /// The new process.
    Child,
    /// The old one, with the new one's number and handle.
    Parent(i32, OwnedFd),
}

/// Makes a process in new namespaces (`CLONE_NEW*`) and, if given, in that cgroup.
///
/// Callers run it in a single-threaded process only: the child goes on in a copy of the caller,
/// where locks held by other threads would never be released.
pub(crate) fn fork_into(namespaces: i32, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    let mut pidfd: RawFd = -1;
    // SAFETY: an all-zero `clone_args` is a valid value of this plain structure.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = u64::from(u32::try_from(namespaces | libc::CLONE_PIDFD).unwrap_or_default());
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = u64::try_from(libc::SIGCHLD).unwrap_or_default();
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::try_from(cgroup.as_raw_fd()).unwrap_or_default();
    }
    // SAFETY: without CLONE_VM the child has its own copy of memory and this is a plain fork;
    // `args` and `pidfd` live through the call and the size is that of `args`.
    let pid = checked_long(unsafe {
        libc::syscall(libc::SYS_clone3, &raw mut args, std::mem::size_of::<libc::clone_args>())
    })?;
    if pid == 0 {
        return Ok(Forked::Child);
    }
    Ok(Forked::Parent(i32::try_from(pid).unwrap_or(-1), owned(libc::c_long::from(pidfd))?))
}

/// Ends this process at once, running no destructor.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process; nothing after it runs.
    unsafe { libc::_exit(code) }
}

/// Joins a namespace. With a pidfd, `kinds` picks which of that process's.
pub(crate) fn join(namespace: BorrowedFd<'_>, kinds: i32) -> io::Result<()> {
    // SAFETY: plain integers on a descriptor we borrow.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), kinds) }).map(drop)
}

/// Leaves the present namespaces of these kinds for new ones.
pub(crate) fn unshare(kinds: i32) -> io::Result<()> {
    // SAFETY: plain integer.
    checked(unsafe { libc::unshare(kinds) }).map(drop)
}

/// A handle on a process that can't come to mean another one.
pub(crate) fn open_pid(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain integers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
}

/// Sends a signal; a process that is gone already is fine.
pub(crate) fn signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: plain integers on a descriptor we borrow; null asks for the ordinary signal info.
    let sent = checked_long(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    });
    match sent {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other.map(drop),
    }
}

/// Whether the process has ended (also when it is not our child).
pub(crate) fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd, and no waiting.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

/// Reaps one ended child, any: its number and exit code (128 + signal when it was killed).
pub(crate) fn reap_any() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    if pid <= 0 {
        return None;
    }
    let code = if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    };
    Some((pid, code))
}

/// Orphans of our descendants become our children.
pub(crate) fn become_subreaper() -> io::Result<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// `prctl` with one number.
pub(crate) fn prctl(option: i32, value: u64) -> io::Result<()> {
    // SAFETY: only options that take plain numbers are used in this crate.
    checked(unsafe { libc::prctl(option, value, 0, 0, 0) }).map(drop)
}

/// Becomes root of the present user namespace, without supplementary groups.
pub(crate) fn become_root() -> io::Result<()> {
    // SAFETY: plain integers; an empty list may be null.
    unsafe {
        checked(libc::setgroups(0, std::ptr::null()))?;
        checked(libc::setresgid(0, 0, 0))?;
        checked(libc::setresuid(0, 0, 0)).map(drop)
    }
}

/// Becomes an ordinary user and group of the host, keeping all capabilities.
pub(crate) fn become_user(id: u32) -> io::Result<()> {
    prctl(libc::PR_SET_KEEPCAPS, 1)?;
    // SAFETY: plain integers.
    unsafe {
        checked(libc::setresgid(id, id, id))?;
        checked(libc::setresuid(id, id, id))?;
    }
    use_all_capabilities()
}

/// Allows as many open files as the machine's operator does.
pub(crate) fn raise_open_files() -> io::Result<()> {
    // SAFETY: an all-zero `rlimit` is a valid value of this plain structure.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: `limit` lives through both calls.
    unsafe {
        checked(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit))?;
        limit.rlim_cur = limit.rlim_max;
        checked(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)).map(drop)
    }
}

/// A session of our own, away from any terminal.
pub(crate) fn new_session() -> io::Result<()> {
    // SAFETY: takes nothing.
    checked(unsafe { libc::setsid() }).map(drop)
}

/// Blocks every signal or none.
pub(crate) fn block_signals(block: bool) -> io::Result<()> {
    // SAFETY: `set` is initialised by the calls before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        if block {
            libc::sigfillset(&raw mut set);
        } else {
            libc::sigemptyset(&raw mut set);
        }
        checked(libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()))
            .map(drop)
    }
}

/// Lets `SIGPIPE` and friends be as a new process expects them.
pub(crate) fn default_signals() {
    for signal in [libc::SIGPIPE, libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: restores the default handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Sets both limits of a resource.
pub(crate) fn limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: `limit` lives through the call.
    checked(unsafe { libc::setrlimit(resource, &raw const limit) }).map(drop)
}

/// Keeps exactly these capabilities, in every set.
pub(crate) fn keep_capabilities(keep: &[u32]) -> io::Result<()> {
    for capability in 0..64 {
        if !keep.contains(&capability) {
            // Numbers beyond what the kernel knows are refused: that is the end of the list.
            if prctl(libc::PR_CAPBSET_DROP, u64::from(capability)).is_err() {
                break;
            }
        }
    }
    prctl(libc::PR_CAP_AMBIENT, u64::from(libc::PR_CAP_AMBIENT_CLEAR_ALL.unsigned_abs()))?;
    let mut sets = [CapabilitySet::default(); 2];
    for capability in keep {
        let word = &mut sets[(capability / 32) as usize];
        word.effective |= 1 << (capability % 32);
        word.permitted |= 1 << (capability % 32);
    }
    set_capabilities(sets)
}

/// Half of a process's capabilities, as the kernel lays them out in version 3.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilitySet {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

/// `_LINUX_CAPABILITY_VERSION_3`, for the calling thread.
const CAPABILITY_HEADER: CapabilityHeader = CapabilityHeader { version: 0x2008_0522, pid: 0 };

fn set_capabilities(sets: [CapabilitySet; 2]) -> io::Result<()> {
    let header = CAPABILITY_HEADER;
    // SAFETY: header and sets have the layout the kernel documents for version 3.
    checked_long(unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) })
        .map(drop)
}

/// Makes every capability effective that the process may have.
fn use_all_capabilities() -> io::Result<()> {
    let mut header = CAPABILITY_HEADER;
    let mut sets = [CapabilitySet::default(); 2];
    // SAFETY: header and sets have the layout the kernel documents for version 3.
    checked_long(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) })?;
    for set in &mut sets {
        set.effective = set.permitted;
    }
    set_capabilities(sets)
}

/// Puts a system call filter on this process and all that come from it.
pub(crate) fn install_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `filter` points at `length` instructions that live through the call; the kernel
    // only reads them.
    checked_long(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter)
    })
    .map(drop)
}

/// Becomes the program that `program` refers to.
pub(crate) fn exec(program: BorrowedFd<'_>, args: &[&std::ffi::CStr]) -> io::Error {
    let mut argv: Vec<*const libc::c_char> = args.iter().map(|a| a.as_ptr()).collect();
    argv.push(std::ptr::null());
    let envp = [std::ptr::null::<libc::c_char>()];
    // SAFETY: both lists end in null and their strings live until the process image is replaced.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    io::Error::last_os_error()
}

/// Does file work as the user and group `id`, with all capabilities. Files made in a sandbox's
/// tree must belong to ids that its maps know.
pub(crate) fn as_file_owner<T>(id: u32, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // SAFETY: plain integers; these calls report no error and the old ids are restored below.
    unsafe {
        libc::setfsgid(id);
        libc::setfsuid(id);
    }
    // Leaving id 0 took the capabilities over files away.
    let result = use_all_capabilities().and_then(|()| work());
    // SAFETY: as above.
    unsafe {
        libc::setfsuid(0);
        libc::setfsgid(0);
    }
    result
}

/// Names the machine of the present host name namespace.
pub(crate) fn set_hostname(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length are those of `name`.
    checked(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// Lets the asynchronous runtime say when the process has ended.
pub(crate) fn watch(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the result, so it stays open and the same as long as it
    // is registered.
    unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }.map_err(Into::into)
}
