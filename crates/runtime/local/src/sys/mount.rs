//! The mount interface of Linux 5.12 and later, and the old one where it is shorter.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::{c_path, c_str, checked, checked_long, owned};

/// What a mount may not do, and whose ids it shows.
#[derive(Clone, Copy, Default)]
pub(crate) struct Attributes<'a> {
    /// `MOUNT_ATTR_*` bits to set.
    pub(crate) set: u64,
    /// Shows ids through this user namespace.
    pub(crate) id_map: Option<BorrowedFd<'a>>,
}

/// A copy of the mount at `path` that is attached nowhere yet.
pub(crate) fn clone_tree(path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    let mut flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= u32::try_from(libc::AT_RECURSIVE).unwrap_or_default();
    }
    // SAFETY: `path` is a C string that lives through the call.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })
}

/// The same for what a descriptor refers to: no path that could have changed meanwhile.
pub(crate) fn clone_place(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let empty = u32::try_from(libc::AT_EMPTY_PATH).unwrap_or_default();
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | empty;
    // SAFETY: the empty path lives through the call.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, place.as_raw_fd(), c"".as_ptr(), flags) })
}

/// Changes a mount that `clone_tree` or `Filesystem::mount` made.
pub(crate) fn set_attributes(
    mount: BorrowedFd<'_>,
    attributes: Attributes<'_>,
    recursive: bool,
) -> io::Result<()> {
    // SAFETY: an all-zero `mount_attr` is a valid value of this plain structure.
    let mut attr: libc::mount_attr = unsafe { std::mem::zeroed() };
    attr.attr_set = attributes.set;
    if let Some(user_namespace) = attributes.id_map {
        attr.attr_set |= libc::MOUNT_ATTR_IDMAP;
        attr.userns_fd = u64::try_from(user_namespace.as_raw_fd()).unwrap_or_default();
    }
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the empty path and `attr` live through the call and the size is that of `attr`.
    checked_long(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw mut attr,
            std::mem::size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Attaches a mount at `target`.
pub(crate) fn attach(mount: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
    let target = c_path(target)?;
    // SAFETY: both paths are C strings that live through the call.
    checked_long(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// Attaches a mount on top of the place that `target` refers to.
pub(crate) fn attach_at(mount: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the empty paths live through the call.
    checked_long(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            target.as_raw_fd(),
            c"".as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// A filesystem being configured.
pub(crate) struct Filesystem(OwnedFd);

impl Filesystem {
    /// Begins a filesystem of this kind.
    pub(crate) fn open(kind: &CStr) -> io::Result<Self> {
        // SAFETY: `kind` is a C string that lives through the call.
        owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), libc::FSOPEN_CLOEXEC) })
            .map(Self)
    }

    /// Sets `key=value`.
    pub(crate) fn set(&self, key: &CStr, value: &[u8]) -> io::Result<()> {
        let value = c_str(value)?;
        self.configure(libc::FSCONFIG_SET_STRING, key.as_ptr(), value.as_ptr())
    }

    /// Sets a key without a value.
    pub(crate) fn flag(&self, key: &CStr) -> io::Result<()> {
        self.configure(libc::FSCONFIG_SET_FLAG, key.as_ptr(), std::ptr::null())
    }

    /// Makes the filesystem and a mount of it that is attached nowhere yet.
    pub(crate) fn mount(self, attributes: u64) -> io::Result<OwnedFd> {
        self.configure(libc::FSCONFIG_CMD_CREATE, std::ptr::null(), std::ptr::null())?;
        // SAFETY: plain integers on a descriptor we own.
        owned(unsafe {
            libc::syscall(
                libc::SYS_fsmount,
                self.0.as_raw_fd(),
                libc::FSMOUNT_CLOEXEC,
                u32::try_from(attributes).unwrap_or_default(),
            )
        })
    }

    fn configure(
        &self,
        command: u32,
        key: *const libc::c_char,
        value: *const libc::c_char,
    ) -> io::Result<()> {
        // SAFETY: `key` and `value` are null or C strings that the callers above keep alive.
        checked_long(unsafe {
            libc::syscall(libc::SYS_fsconfig, self.0.as_raw_fd(), command, key, value, 0)
        })
        .map(drop)
    }
}

/// Makes every mount of this namespace invisible to others and others' to it.
pub(crate) fn make_all_private() -> io::Result<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the C strings live through the call; null is allowed for the unused ones.
    checked(unsafe {
        libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null())
    })
    .map(drop)
}

/// Makes the present folder the root and lets go of the old one.
pub(crate) fn pivot_here() -> io::Result<()> {
    // SAFETY: both paths are C strings that live through the call.
    checked_long(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
    // SAFETY: as above.
    checked(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) })?;
    std::env::set_current_dir("/")
}

/// Takes a mount away as soon as nobody uses it.
pub(crate) fn detach(target: &Path) -> io::Result<()> {
    let target = c_path(target)?;
    // SAFETY: `target` is a C string that lives through the call.
    checked(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) }).map(drop)
}

/// Makes a device node.
pub(crate) fn make_device(path: &Path, mode: u32, major: u32, minor: u32) -> io::Result<()> {
    let path = c_path(path)?;
    let device = libc::makedev(major, minor);
    // SAFETY: `path` is a C string that lives through the call.
    checked(unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR | mode, device) }).map(drop)
}
