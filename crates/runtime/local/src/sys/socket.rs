//! Sockets that the standard library can't make.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{checked, owned};

/// A TCP socket of the present network namespace that never blocks.
pub(crate) fn tcp() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: plain integers.
    owned(libc::c_long::from(unsafe { libc::socket(libc::AF_INET, kind, 0) }))
}

/// A socket that configures the present network namespace.
pub(crate) fn route_netlink() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: plain integers.
    owned(libc::c_long::from(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) }))
}

/// Sends the whole message.
pub(crate) fn send(socket: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length are those of `message`.
    let sent = unsafe {
        libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), libc::MSG_NOSIGNAL)
    };
    match usize::try_from(sent) {
        Ok(sent) if sent == message.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Receives one message.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length are those of `buffer`.
    let got =
        unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Ready descriptors, by the number each was added with.
pub(crate) struct Poller(OwnedFd);

impl Poller {
    /// Watches nothing yet.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: plain integer.
        owned(libc::c_long::from(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })).map(Self)
    }

    /// Watches `fd` for something to read; it leaves by being closed.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let events = u32::try_from(libc::EPOLLIN).unwrap_or_default();
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: `event` lives through the call.
        checked(unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event)
        })
        .map(drop)
    }

    /// Stops watching `fd`.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        // SAFETY: null is allowed for removal; a descriptor that isn't watched is harmless.
        unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd.as_raw_fd(),
                std::ptr::null_mut(),
            );
        }
    }

    /// Waits at most `timeout_ms` (-1: for ever) and gives the tokens that are ready.
    pub(crate) fn wait(&self, timeout_ms: i32) -> io::Result<Vec<u64>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: pointer and length are those of `events`.
        let ready =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 64, timeout_ms) };
        match checked(ready) {
            Ok(count) => {
                Ok(events.iter().take(usize::try_from(count).unwrap_or(0)).map(|e| e.u64).collect())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// The number of an interface of the present namespace; 0 when there is none of that name.
pub(crate) fn interface_index(name: &std::ffi::CStr) -> u32 {
    // SAFETY: `name` is a C string that lives through the call.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}
