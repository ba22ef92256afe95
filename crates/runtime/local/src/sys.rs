//! Thin wrappers over system calls: the only place with `unsafe`.
//!
//! Each function is the call with Rust types and errors, nothing more.

#![allow(unsafe_code, reason = "system calls that no safe library offers")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) mod mount;
pub(crate) mod process;
pub(crate) mod socket;

/// The path as C wants it.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    c_str(path.as_os_str().as_bytes())
}

/// The text as C wants it.
pub(crate) fn c_str(bytes: impl AsRef<[u8]>) -> io::Result<CString> {
    CString::new(bytes.as_ref()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// A call's result: -1 means `errno`.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for calls made by number.
fn checked_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes ownership of a descriptor a call has just made.
fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let raw = RawFd::try_from(checked_long(result)?)
        .map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Opens a path for its location only.
pub(crate) fn open_path(path: &Path) -> io::Result<OwnedFd> {
    open_at(None, path, libc::O_PATH)
}

/// Opens `path` relative to `dir`.
pub(crate) fn open_at(dir: Option<BorrowedFd<'_>>, path: &Path, flags: i32) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    let dir = dir.map_or(libc::AT_FDCWD, |d| d.as_raw_fd());
    // SAFETY: `path` is a C string that lives through the call.
    owned(libc::c_long::from(unsafe { libc::openat(dir, path.as_ptr(), flags | libc::O_CLOEXEC) }))
}

/// Makes the new folder `name` in `dir`.
pub(crate) fn make_folder_at(dir: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    let name = c_path(name)?;
    // SAFETY: `name` is a C string that lives through the call.
    checked(unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), 0o755) }).map(drop)
}

/// Makes the new file `name` in `dir`, open for writing.
pub(crate) fn make_file_at(dir: BorrowedFd<'_>, name: &Path) -> io::Result<std::fs::File> {
    let name = c_path(name)?;
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `name` is a C string that lives through the call.
    let made = unsafe { libc::openat(dir.as_raw_fd(), name.as_ptr(), flags, 0o644) };
    owned(libc::c_long::from(made)).map(Into::into)
}

/// Removes the file `name` from `dir`; one that isn't there is fine.
pub(crate) fn remove_file_at(dir: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    let name = c_path(name)?;
    // SAFETY: `name` is a C string that lives through the call.
    match checked(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), 0) }) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map(drop),
    }
}

/// Opens `path` as if `root` were `/`: links and `..` can't leave it.
pub(crate) fn open_in_root(root: BorrowedFd<'_>, path: &Path, flags: i32) -> io::Result<OwnedFd> {
    open_how(root, path, flags, libc::RESOLVE_IN_ROOT)
}

/// Opens what is called `name` in `dir`; a link is refused, wherever it leads.
pub(crate) fn open_no_link(dir: BorrowedFd<'_>, name: &Path, flags: i32) -> io::Result<OwnedFd> {
    let resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;
    open_how(dir, name, flags, resolve)
}

fn open_how(root: BorrowedFd<'_>, path: &Path, flags: i32, resolve: u64) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: an all-zero `open_how` is a valid value of this plain structure.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::try_from(flags | libc::O_CLOEXEC).unwrap_or_default();
    how.resolve = resolve;
    // SAFETY: `path` and `how` live through the call and the size is that of `how`.
    owned(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            std::mem::size_of::<libc::open_how>(),
        )
    })
}

/// Bytes that a disk has in all and has left, by any path on it.
pub(crate) fn disk_space(path: &Path) -> io::Result<(u64, u64)> {
    let path = c_path(path)?;
    // SAFETY: an all-zero `statvfs` is a valid value of this plain structure.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a C string and `found` lives through the call.
    checked(unsafe { libc::statvfs(path.as_ptr(), &raw mut found) })?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok((bytes(found.f_blocks), bytes(found.f_bavail)))
}

/// Memory that looks like a file of exactly `size` bytes and can never grow.
pub(crate) fn sealed_memory(name: &CStr, size: u64) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a C string that lives through the call.
    let fd = owned(libc::c_long::from(unsafe { libc::memfd_create(name.as_ptr(), flags) }))?;
    std::fs::File::from(fd.try_clone()?).set_len(size)?;
    let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: plain integers on a descriptor we own.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(fd)
}

/// Memory that looks like a file holding `content`, to be read from its start.
pub(crate) fn memory_file(name: &CStr, content: &[u8]) -> io::Result<OwnedFd> {
    use std::io::{Seek, Write};
    // SAFETY: `name` is a C string that lives through the call.
    let raw = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    let mut file = std::fs::File::from(owned(libc::c_long::from(raw))?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}

/// Lets `fd` be inherited as number `as_fd`.
pub(crate) fn inherit_as(fd: BorrowedFd<'_>, as_fd: RawFd) -> io::Result<()> {
    // SAFETY: plain integers; the caller gives up whatever was at `as_fd`.
    checked(unsafe { libc::dup2(fd.as_raw_fd(), as_fd) }).map(drop)
}

/// A copy of `fd` with a number of at least `from`, so that it is out of the way of fixed ones.
pub(crate) fn duplicate_above(fd: BorrowedFd<'_>, from: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain integers on a descriptor we borrow.
    owned(libc::c_long::from(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, from) }))
}

/// Marks every descriptor from `first` on to be closed at exec.
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: plain integers.
    checked_long(unsafe {
        libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
    })
    .map(drop)
}
