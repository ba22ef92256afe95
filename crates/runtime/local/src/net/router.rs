//! The router and the cables to it.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::netlink::{End, Netlink};
use super::{Firewall, NetworkConfig, Uplink};
use crate::sys::process::{join, unshare};

/// Interface numbers of sandboxes in the router begin here; smaller ones are the router's own.
const FIRST_INDEX: u32 = 1000;
/// Sandboxes that fit into the subnet: each takes two addresses, the last four are the uplink's.
const CABLES_MAX: u32 = 32_766;
/// The only interface of a sandbox besides loopback.
const ETH0: u32 = 2;
/// The router's end of the uplink.
const UP0: u32 = 2;

/// A network namespace ready for one sandbox.
#[derive(Debug)]
pub(crate) struct Cable {
    /// The namespace.
    pub(crate) namespace: OwnedFd,
    /// Its number, which gives its addresses; none when it leads nowhere.
    pub(crate) number: Option<u32>,
}

/// The namespace of this process as a router.
pub(crate) struct Router {
    config: NetworkConfig,
    /// The namespace the process came from.
    host: OwnedFd,
    /// The router's own.
    own: OwnedFd,
    netlink: Netlink,
    /// Name of the host's end of the uplink, and of the host's table.
    host_end: String,
    next: u32,
}

impl Router {
    /// Moves this process into a new namespace and makes that a router. `label` is unique to this
    /// installation.
    pub(crate) fn start(config: NetworkConfig, label: &str) -> io::Result<Self> {
        let host = present()?;
        unshare(libc::CLONE_NEWNET)?;
        let own = present()?;
        let netlink = Netlink::open()?;
        netlink.up(1)?;
        let mut router =
            Self { config, host, own, netlink, host_end: format!("atoll{label}"), next: 0 };
        if router.config.uplink != Uplink::None {
            router.connect()?;
        }
        Ok(router)
    }

    /// Whether cables lead anywhere.
    pub(crate) fn is_connected(&self) -> bool {
        self.config.uplink != Uplink::None
    }

    /// A new namespace with nothing but loopback.
    pub(crate) fn closed(&self) -> io::Result<Cable> {
        let namespace = self.in_new(|| Ok(()))?;
        Ok(Cable { namespace, number: None })
    }

    /// A new namespace with a cable to the router; `taken` tells which numbers are in use.
    pub(crate) fn cable(&mut self, taken: impl Fn(u32) -> bool) -> io::Result<Cable> {
        for _ in 0..CABLES_MAX {
            let number = self.next;
            self.next = (self.next + 1) % CABLES_MAX;
            if taken(number) {
                continue;
            }
            match self.wire(number) {
                // The kernel is still taking an earlier cable of this number away.
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                other => return other,
            }
        }
        Err(io::Error::other("every address of the sandboxes' subnet is in use"))
    }

    /// Undoes what a start did to the host.
    pub(crate) fn stop(&self) -> io::Result<()> {
        // A younger router may have taken the uplink over, and with it the host's rules.
        let ours = crate::sys::socket::interface_index(c"up0") != 0;
        if self.config.uplink != Uplink::Host || !ours {
            return Ok(());
        }
        self.inside(&self.host, || Firewall::load(&Firewall::host_removal(&self.host_end)))
    }

    fn wire(&self, number: u32) -> io::Result<Cable> {
        let namespace = self.in_new(|| self.plug_in(number))?;
        self.switch_on(number)?;
        Ok(Cable { namespace, number: Some(number) })
    }

    /// Lays the cable of a sandbox that outlived an earlier router anew. `sandbox` is its first
    /// process.
    pub(crate) fn rewire(&self, sandbox: BorrowedFd<'_>, number: u32) -> io::Result<()> {
        join(sandbox, libc::CLONE_NEWNET)?;
        // The kernel may not have taken the old end away yet.
        let plugged = Netlink::open()
            .and_then(|netlink| netlink.remove("eth0"))
            .and_then(|()| self.plug_in(number));
        join(self.own.as_fd(), libc::CLONE_NEWNET)?;
        plugged?;
        self.switch_on(number)
    }

    /// In a sandbox's namespace: makes its end of the cable.
    fn plug_in(&self, number: u32) -> io::Result<()> {
        no_ipv6();
        let netlink = Netlink::open()?;
        let gateway = self.gateway(number);
        let outside = format!("s{number}");
        let here = End { name: "eth0", index: ETH0 };
        let there = End { name: &outside, index: FIRST_INDEX + number };
        netlink.add_cable(&here, &there, self.own.as_fd())?;
        netlink.add_address(ETH0, next_address(gateway), 31)?;
        netlink.up(ETH0)?;
        netlink.add_default_route(ETH0, gateway)
    }

    /// In the router's namespace: its end.
    fn switch_on(&self, number: u32) -> io::Result<()> {
        let index = FIRST_INDEX + number;
        self.netlink.add_address(index, self.gateway(number), 31)?;
        self.netlink.up(index)
    }

    /// Makes a namespace for a sandbox, does `work` in it and comes back.
    fn in_new(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<OwnedFd> {
        unshare(libc::CLONE_NEWNET)?;
        let made = furnish().and_then(|namespace| work().map(|()| namespace));
        join(self.own.as_fd(), libc::CLONE_NEWNET)?;
        made
    }

    /// Lays the cable to the host (or its stand-in) and loads the rules on both sides.
    fn connect(&mut self) -> io::Result<()> {
        let last = Ipv4Addr::from(u32::from(self.config.subnet) | 0xFFFF);
        let [a, b, _, _] = last.octets();
        let (host_address, own_address) =
            (Ipv4Addr::new(a, b, 255, 253), Ipv4Addr::new(a, b, 255, 254));
        let outside = match &self.config.uplink {
            Uplink::Namespace(path) => File::open(path)
                .map_err(|e| io::Error::new(e.kind(), format!("opening the uplink {path}: {e}")))?
                .into(),
            Uplink::Host | Uplink::None => self.host.try_clone()?,
        };
        // A router that was killed may have left its end for the kernel to collect.
        let host_index = self.inside(&outside, || {
            Netlink::open()?.remove(&self.host_end)?;
            free_index()
        })?;
        let there = End { name: &self.host_end, index: host_index };
        self.netlink.add_cable(&End { name: "up0", index: UP0 }, &there, outside.as_fd())?;
        self.netlink.add_address(UP0, own_address, 30)?;
        self.netlink.up(UP0)?;
        self.netlink.add_default_route(UP0, host_address)?;
        sysctl("ipv4/ip_forward", "1")?;
        sysctl("ipv4/conf/all/rp_filter", "1")?;
        no_ipv6();
        Firewall::load(&Firewall::router(&self.config))?;
        self.inside(&outside, || {
            let netlink = Netlink::open()?;
            netlink.add_address(host_index, host_address, 30)?;
            netlink.up(host_index)?;
            if self.config.uplink == Uplink::Host {
                sysctl("ipv4/ip_forward", "1")?;
                Firewall::load(&Firewall::host(&self.host_end, &self.host_end, own_address))?;
            }
            Ok(())
        })
    }

    /// Does something in another network namespace and comes back.
    fn inside<T>(
        &self,
        namespace: &OwnedFd,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        join(namespace.as_fd(), libc::CLONE_NEWNET)?;
        let result = work();
        join(self.own.as_fd(), libc::CLONE_NEWNET)?;
        result
    }

    /// The router's address on cable `number`; the sandbox has the next one.
    fn gateway(&self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from((u32::from(self.config.subnet) & 0xFFFF_0000) + 2 * number)
    }
}

/// Sets the present, new namespace up for a sandbox.
fn furnish() -> io::Result<OwnedFd> {
    // Root inside has no capability over this namespace, so these doors are opened for it.
    sysctl("ipv4/ip_unprivileged_port_start", "0")?;
    sysctl("ipv4/ping_group_range", "0 2147483647")?;
    Netlink::open()?.up(1)?;
    present()
}

fn next_address(address: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(address) + 1)
}

/// The present network namespace.
fn present() -> io::Result<OwnedFd> {
    File::open("/proc/thread-self/ns/net").map(Into::into)
}

fn sysctl(name: &str, value: &str) -> io::Result<()> {
    let path = format!("/proc/sys/net/{name}");
    std::fs::write(&path, value)
        .map_err(|e| io::Error::new(e.kind(), format!("writing {value} to {path}: {e}")))
}

/// Interfaces made from now on speak IPv4 only; a kernel without IPv6 needs nothing.
fn no_ipv6() {
    if let Err(error) = sysctl("ipv6/conf/default/disable_ipv6", "1") {
        tracing::debug!(%error, "no IPv6 to switch off");
    }
}

/// An interface number that the present namespace doesn't use.
fn free_index() -> io::Result<u32> {
    let used: Vec<u32> = std::fs::read_dir("/proc/sys/net/ipv4/conf")?
        .filter_map(Result::ok)
        .filter_map(|entry| std::ffi::CString::new(entry.file_name().into_encoded_bytes()).ok())
        .map(|name| crate::sys::socket::interface_index(&name))
        .collect();
    Ok(used.into_iter().max().unwrap_or(0) + 1)
}
