//! The network of sandboxes.
//!
//! The spawner's own network namespace is the router: every sandbox's cable ends in it, its
//! firewall decides, and one cable leads from it to the host (or, in tests, to a namespace of
//! fake hosts). When the spawner is gone, so is all of it: the kernel takes the cables away.
//!
//! A sandbox's namespace belongs to the host's user namespace, so root inside a sandbox can
//! change neither its address nor its routes, and has no raw sockets.

mod firewall;
mod netlink;
mod router;

pub(crate) use firewall::Firewall;
pub(crate) use router::{Cable, Router};

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// How sandboxes are connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uplink {
    /// Sandboxes reach nothing but themselves.
    None,
    /// The internet through the host.
    Host,
    /// The network namespace at this path takes the host's place.
    Namespace(String),
}

/// The addresses and rules of sandboxes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkConfig {
    /// Where packets go.
    pub uplink: Uplink,
    /// A network of 16 bits that nothing else uses; sandboxes get their addresses from it.
    pub subnet: Ipv4Addr,
    /// Resolvers that sandboxes use, reachable even at a private address.
    pub resolvers: Vec<Ipv4Addr>,
    /// Private or otherwise closed networks that sandboxes may reach nevertheless.
    pub allow: Vec<String>,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            uplink: Uplink::Host,
            subnet: Ipv4Addr::new(10, 231, 0, 0),
            resolvers: Vec::new(),
            allow: Vec::new(),
        }
    }
}

/// Resolvers of this host that a sandbox could use: those at an address of their own.
pub fn host_resolvers() -> Vec<Ipv4Addr> {
    // systemd's stub listens on loopback only; behind it stands the real list.
    ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .map(|text| parse_resolvers(&text))
        .find(|list| !list.is_empty())
        .unwrap_or_default()
}

fn parse_resolvers(text: &str) -> Vec<Ipv4Addr> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok())
        .filter(|address: &Ipv4Addr| !address.is_loopback())
        .take(3)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::parse_resolvers;

    #[test]
    fn loopback_resolvers_are_of_no_use_inside() {
        let text = "search x\nnameserver 127.0.0.53\nnameserver 192.0.2.1\nnameserver ::1\n";
        assert_eq!(parse_resolvers(text), ["192.0.2.1".parse::<std::net::Ipv4Addr>().unwrap()]);
    }
}
