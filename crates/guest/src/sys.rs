//! The few system calls that have no safe wrapper; all unsafe code of this crate is here.
#![allow(unsafe_code, reason = "raw system calls, each with its SAFETY note")]

use crate::Identity;
use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Command, ExitStatus},
};
use tokio::io::unix::AsyncFd;

fn check(result: impl Into<i64>) -> io::Result<i64> {
    match result.into() {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// The effective user id of this process.
pub fn effective_uid() -> u32 {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether this process is the first one of its pid namespace.
pub fn is_init() -> bool {
    std::process::id() == 1
}

/// Takes over a descriptor that the parent left open at a known number.
///
/// Returns nothing when the number is not open. Call once per number, before anything else opens
/// descriptors.
pub fn inherited(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: F_GETFD only asks whether the number is open.
    let open = unsafe { libc::fcntl(number, libc::F_GETFD) } != -1;
    // SAFETY: the number is open and, by this function's contract, nobody else owns it.
    open.then(|| unsafe { OwnedFd::from_raw_fd(number) })
}

/// Marks every descriptor from 3 on as closed on exec, so that no command sees them.
pub fn close_on_exec_all() -> io::Result<()> {
    // SAFETY: close_range with CLOEXEC changes flags of our own descriptors only.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 4u32) };
    if done == 0 {
        return Ok(());
    }
    for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        if let Some(number) = number.filter(|number| *number > 2) {
            // SAFETY: F_SETFD on a number that may have been closed since fails harmlessly.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// What a look at a child found.
#[derive(Debug, PartialEq, Eq)]
pub enum Look {
    /// The child with this pid has ended and waits to be reaped.
    Ended(i32),
    /// Children exist, none has ended.
    Running,
    /// There is no such child.
    Nobody,
}

/// Looks for an ended child (any, or one pid) without reaping it.
pub fn peek(pid: Option<i32>) -> Look {
    // SAFETY: siginfo_t is plain data for which all zeroes is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let (kind, id) = pid.map_or((libc::P_ALL, 0), |pid| (libc::P_PID, pid as libc::id_t));
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: info outlives the call and is of the right type.
    match unsafe { libc::waitid(kind, id, &mut info, flags) } {
        // SAFETY: waitid succeeded, so the child fields are set (zero when nobody has ended).
        0 => match unsafe { info.si_pid() } {
            0 => Look::Running,
            pid => Look::Ended(pid),
        },
        _ => Look::Nobody,
    }
}

/// Reaps one ended child; nothing when it still runs or is not ours.
pub fn reap(pid: i32) -> Option<ExitStatus> {
    let mut status = 0;
    // SAFETY: status is a valid place for the result.
    let reaped = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
    (reaped == pid).then(|| ExitStatus::from_raw(status))
}

/// Sends a signal to a process group.
pub fn signal_group(group: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill has no memory effects.
    check(unsafe { libc::kill(-group, signal) }).map(drop)
}

/// Sends a signal to one process.
pub fn signal_process(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill has no memory effects.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Kills every process of the pid namespace but this one; does nothing unless this is its init.
pub fn kill_everything_else() {
    if is_init() {
        // SAFETY: kill has no memory effects; -1 spares the caller.
        unsafe { libc::kill(-1, libc::SIGKILL) };
    }
}

/// Makes a command run as `identity`: groups first, then group, then user.
pub fn run_as(command: &mut Command, identity: &Identity) {
    let identity = identity.clone();
    let change = move || {
        // SAFETY: raw calls in the forked child, whose only thread is this one; the pointer and
        // length describe the vector that the closure owns.
        unsafe {
            let groups = &identity.groups;
            check(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
            check(libc::syscall(libc::SYS_setresgid, identity.gid, identity.gid, identity.gid))?;
            check(libc::syscall(libc::SYS_setresuid, identity.uid, identity.uid, identity.uid))?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it neither allocates nor takes locks.
    unsafe { command.pre_exec(change) };
}

/// Makes a command lead a new session whose controlling terminal is its stdin.
pub fn own_terminal(command: &mut Command) {
    // SAFETY: the closure makes system calls only; it neither allocates nor takes locks.
    unsafe {
        command.pre_exec(|| {
            check(libc::setsid())?;
            check(libc::ioctl(0, libc::TIOCSCTTY, 0)).map(drop)
        });
    }
}

/// Switches file access of the calling thread, and of it alone, to `identity` for good.
pub fn assume_file_identity(identity: &Identity) -> io::Result<()> {
    let groups = &identity.groups;
    // SAFETY: the raw calls (unlike the library's) change the calling thread only; the pointer and
    // length describe a live vector.
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
        libc::syscall(libc::SYS_setfsgid, identity.gid);
        libc::syscall(libc::SYS_setfsuid, identity.uid);
        // The calls report the previous value and never fail aloud: ask again to see if they took.
        let gid = libc::syscall(libc::SYS_setfsgid, u32::MAX) as u32;
        let uid = libc::syscall(libc::SYS_setfsuid, u32::MAX) as u32;
        if (uid, gid) != (identity.uid, identity.gid) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
    }
    Ok(())
}

/// Makes reads and writes return at once instead of waiting.
pub fn set_nonblocking(fd: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: F_GETFL and F_SETFL on a descriptor that the caller holds open.
    unsafe {
        let flags = check(libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))?;
        check(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags as i32 | libc::O_NONBLOCK)).map(drop)
    }
}

/// The time since boot in the unit in which the process table tells when processes started.
pub fn boot_ticks() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: now is live and of the type this call fills; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    // The kernel shows user space 100 ticks a second whatever its own rate.
    now.tv_sec as u64 * 100 + now.tv_nsec as u64 / 10_000_000
}

/// An anonymous file in memory, closed on exec.
pub fn memory_file() -> io::Result<File> {
    // SAFETY: the name is a terminated string.
    let fd = check(unsafe { libc::memfd_create(c"atoll".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { File::from_raw_fd(fd as RawFd) })
}

/// Opens a new terminal pair: the controlling side, non-blocking, and the process's side.
pub fn open_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let open = |path| std::fs::OpenOptions::new().read(true).write(true).open(path);
    let master = open("/dev/ptmx").or_else(|_| open("/dev/pts/ptmx"))?;
    let unlock: libc::c_int = 0;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the lock argument is a live int; TIOCGPTPEER takes flags by value.
    let slave = unsafe {
        check(libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &unlock))?;
        check(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags))?
    };
    set_nonblocking(&master)?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok((master.into(), unsafe { OwnedFd::from_raw_fd(slave as RawFd) }))
}

/// Registers a file with the runtime for readiness.
pub fn watch_file(file: File) -> io::Result<AsyncFd<File>> {
    // SAFETY: a File owns one descriptor, keeps it open and never answers another number.
    unsafe { AsyncFd::register(file) }.map_err(io::Error::from)
}

/// Sets a terminal's size in characters.
pub fn resize_terminal(master: &impl AsRawFd, cols: u16, rows: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: size is live and of the type this request reads.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &size) }).map(drop)
}

/// The foreground process group of a terminal.
pub fn foreground_group(master: &impl AsRawFd) -> io::Result<i32> {
    // SAFETY: tcgetpgrp on a descriptor that the caller holds open.
    check(unsafe { libc::tcgetpgrp(master.as_raw_fd()) }).map(|group| group as i32)
}
