//! The few messages of rtnetlink that we need, by hand: links, addresses, routes.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::sys::socket;

const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
/// Set on attributes that hold attributes.
const NESTED: u16 = 0x8000;
/// Acknowledgements are small; this is more than any.
const ANSWER_BYTES: usize = 4096;

/// One end of a cable to make.
pub(super) struct End<'a> {
    pub(super) name: &'a str,
    pub(super) index: u32,
}

/// A connection that configures the namespace it was opened in.
pub(crate) struct Netlink(OwnedFd);

impl Netlink {
    /// Opens one in the present network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        socket::route_netlink().map(Self)
    }

    /// Makes a pair of connected interfaces: one here, the other in `there`.
    pub(super) fn add_cable(
        &self,
        here: &End<'_>,
        there: &End<'_>,
        namespace: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut peer = interface(there.index, 0, 0);
        attribute(&mut peer, libc::IFLA_IFNAME, &text(there.name));
        attribute(&mut peer, libc::IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
        let mut data = Vec::new();
        attribute(&mut data, VETH_INFO_PEER | NESTED, &peer);
        let mut info = Vec::new();
        attribute(&mut info, IFLA_INFO_KIND, b"veth");
        attribute(&mut info, IFLA_INFO_DATA | NESTED, &data);
        let mut body = interface(here.index, 0, 0);
        attribute(&mut body, libc::IFLA_IFNAME, &text(here.name));
        attribute(&mut body, libc::IFLA_LINKINFO | NESTED, &info);
        self.request(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body)
    }

    /// Switches an interface on.
    pub(super) fn up(&self, index: u32) -> io::Result<()> {
        let up = libc::IFF_UP.unsigned_abs();
        self.request(libc::RTM_NEWLINK, 0, &interface(index, up, up))
    }

    /// Removes an interface by name; one that isn't there is fine.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        let mut body = interface(0, 0, 0);
        attribute(&mut body, libc::IFLA_IFNAME, &text(name));
        match self.request(libc::RTM_DELLINK, 0, &body) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            other => other,
        }
    }

    /// Gives an interface an address.
    pub(super) fn add_address(&self, index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let family = u8::try_from(libc::AF_INET).unwrap_or_default();
        let mut body = vec![family, prefix, 0, 0];
        body.extend(index.to_ne_bytes());
        attribute(&mut body, libc::IFA_LOCAL, &address.octets());
        attribute(&mut body, libc::IFA_ADDRESS, &address.octets());
        self.request(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body)
    }

    /// Sends everything else to `gateway`.
    pub(super) fn add_default_route(&self, index: u32, gateway: Ipv4Addr) -> io::Result<()> {
        let family = u8::try_from(libc::AF_INET).unwrap_or_default();
        let mut body = vec![
            family,
            0,
            0,
            0,
            libc::RT_TABLE_MAIN,
            libc::RTPROT_STATIC,
            libc::RT_SCOPE_UNIVERSE,
            libc::RTN_UNICAST,
        ];
        body.extend(0u32.to_ne_bytes());
        attribute(&mut body, libc::RTA_GATEWAY, &gateway.octets());
        attribute(&mut body, libc::RTA_OIF, &index.to_ne_bytes());
        self.request(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body)
    }

    /// Sends one request and waits for the kernel's yes or no.
    fn request(&self, kind: u16, flags: i32, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(16 + body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let flags = u16::try_from(flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK)
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut message = Vec::with_capacity(16 + body.len());
        message.extend(length.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        socket::send(self.0.as_fd(), &message)?;
        let mut answer = [0; ANSWER_BYTES];
        let got = socket::receive(self.0.as_fd(), &mut answer)?;
        let code = answer.get(16..20).filter(|_| got >= 20).and_then(|b| b.try_into().ok());
        match code.map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
            None => Err(io::Error::other("the kernel's answer is cut off")),
        }
    }
}

/// An `ifinfomsg`.
fn interface(index: u32, flags: u32, change: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(change.to_ne_bytes());
    body
}

/// Appends an attribute, padded to four bytes.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn text(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes
}
