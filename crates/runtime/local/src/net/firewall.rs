//! What sandboxes may reach, as two rulesets: one in the router's namespace, one on the host.

use std::io;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::NetworkConfig;

/// Ranges that are not the internet: private, shared, link-local with most clouds' metadata
/// service, another cloud's at a public address, multicast, reserved.
const CLOSED: &str = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 168.63.129.16, \
169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/4, 240.0.0.0/4";

/// Rulesets as text for `nft`.
pub(crate) struct Firewall;

impl Firewall {
    /// The router's rules. They name interfaces by pattern, so that a new sandbox needs no rule.
    pub(crate) fn router(config: &NetworkConfig) -> String {
        let resolvers = list(config.resolvers.iter().map(Ipv4Addr::to_string));
        let allowed = list(config.allow.iter().cloned());
        let mut exceptions = String::new();
        if let Some(resolvers) = resolvers {
            exceptions.push_str(&format!(
                "    ip daddr {{ {resolvers} }} meta l4proto {{ tcp, udp }} th dport 53 accept\n"
            ));
        }
        if let Some(allowed) = allowed {
            exceptions.push_str(&format!("    ip daddr {{ {allowed} }} accept\n"));
        }
        format!(
            "table inet atoll {{
  chain forward {{
    type filter hook forward priority 0; policy drop;
    ct state established,related accept
    meta nfproto ipv6 drop
    iifname \"s*\" oifname \"up0\" jump leaving
  }}
  chain leaving {{
{exceptions}    ip daddr {{ {CLOSED} }} reject with icmp type admin-prohibited
    accept
  }}
  chain input {{
    type filter hook input priority 0; policy drop;
    iifname \"lo\" accept
    iifname \"up0\" ct state established,related accept
  }}
  chain leave {{
    type nat hook postrouting priority srcnat;
    oifname \"up0\" masquerade
  }}
}}
"
        )
    }

    /// The host's rules for the one cable from the router: out to the world, never to the host.
    pub(crate) fn host(table: &str, interface: &str, router: Ipv4Addr) -> String {
        format!(
            "table ip {table}
delete table ip {table}
table ip {table} {{
  chain input {{
    type filter hook input priority -10;
    iifname \"{interface}\" ct state established,related accept
    iifname \"{interface}\" drop
  }}
  chain forward {{
    type filter hook forward priority -10;
    oifname \"{interface}\" ct state established,related accept
    oifname \"{interface}\" drop
  }}
  chain leave {{
    type nat hook postrouting priority srcnat;
    ip saddr {router} oifname != \"{interface}\" masquerade
  }}
}}
"
        )
    }

    /// Removes what [`Firewall::host`] made.
    pub(crate) fn host_removal(table: &str) -> String {
        format!("table ip {table}\ndelete table ip {table}\n")
    }

    /// Loads a ruleset into the present network namespace, all or nothing.
    pub(crate) fn load(rules: &str) -> io::Result<()> {
        use std::io::Write;
        let mut nft = Command::new("nft")
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("running nft: {e}")))?;
        if let Some(mut input) = nft.stdin.take() {
            input.write_all(rules.as_bytes())?;
        }
        let output = nft.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("nft refused the rules: {}", said.trim())))
    }
}

fn list(items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<String> = items.collect();
    (!items.is_empty()).then(|| items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{Firewall, NetworkConfig};

    #[test]
    fn exceptions_come_before_the_closed_ranges() {
        let config = NetworkConfig {
            resolvers: vec!["10.0.0.53".parse().unwrap()],
            allow: vec!["10.1.0.0/16".into()],
            ..NetworkConfig::default()
        };
        let rules = Firewall::router(&config);
        let closed = rules.find("169.254.0.0/16").unwrap();
        assert!(rules.find("10.0.0.53").unwrap() < closed);
        assert!(rules.find("10.1.0.0/16").unwrap() < closed);
        assert!(rules.contains("policy drop"));
    }
}
