//! What traffic may pass: what can be kept is kept, anything else is refused.

use atoll_core::Network;

use crate::lifecycle::error::ApiError;
use crate::lifecycle::state::DoorConfig;
use crate::lifecycle::wire;

const NO_RULES: &str = "this version can't filter what a sandbox reaches by address or name; \
                        leave it out, or send allow_internet_access: false to cut it off from \
                        everything";
/// Longest `Host` that a service is shown.
const HOST_BYTES_MAX: usize = 255;

/// Traffic settings that this server keeps.
#[derive(Debug)]
pub(super) struct Traffic {
    pub(super) network: Network,
    pub(super) public: bool,
    pub(super) mask_host: Option<String>,
}

/// Reads the settings of a new sandbox.
pub(super) fn read(wire: &wire::Network, secure: bool) -> Result<Traffic, ApiError> {
    let open = reaches_internet(wire, "network.")?;
    if let Some(host) = wire.mask_host.as_deref() {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b".-_:[]${}".contains(&b);
        if host.is_empty() || host.len() > HOST_BYTES_MAX || !host.bytes().all(fits) {
            let problem = "write a host name, with a port if need be, such as localhost:${PORT}";
            return Err(ApiError::invalid("network.maskRequestHost", problem));
        }
    }
    let public = wire.public_traffic.unwrap_or(true);
    if !public && !secure {
        let problem = "false can't be combined with secure: false";
        return Err(ApiError::invalid("network.allowPublicTraffic", problem));
    }
    // What was asked for, whether or not there is an uplink: stock of pools is asked for alike.
    let network = if open { Network::Internet } else { Network::Isolated };
    Ok(Traffic { network, public, mask_host: wire.mask_host.clone() })
}

/// Checks that a change asks for nothing but what the sandbox has.
pub(crate) fn check_update(
    config: &DoorConfig,
    present: Network,
    wire: &wire::Network,
) -> Result<(), ApiError> {
    let open = reaches_internet(wire, "")?;
    let same = match present {
        Network::Internet => open,
        Network::Isolated => !open,
    };
    // Without an uplink everything is isolated, whatever was asked for.
    if same || !config.internet {
        return Ok(());
    }
    let (now, asked) = if open { ("has no", "give it any") } else { ("has", "take it away") };
    Err(ApiError::unsupported(
        "allow_internet_access",
        format!("the sandbox {now} internet access, and this version can't {asked} while it lives"),
    ))
}

fn reaches_internet(wire: &wire::Network, prefix: &str) -> Result<bool, ApiError> {
    if let Some(field) = wire.others.first() {
        let reason = if field.ends_with("httpsPorts") {
            "services inside sandboxes are reached by plain HTTP; leave it out"
        } else {
            NO_RULES
        };
        return Err(ApiError::unsupported(field, reason));
    }
    if !wire.allow_out.is_empty() {
        return Err(ApiError::unsupported(&format!("{prefix}allowOut"), NO_RULES));
    }
    // To deny every address is to cut the sandbox off, and that can be kept.
    let is_all = |entry: &String| ["0.0.0.0/0", "::/0"].contains(&entry.as_str());
    let denies_all =
        wire.deny_out.iter().any(|entry| entry == "0.0.0.0/0") && wire.deny_out.iter().all(is_all);
    if !wire.deny_out.is_empty() && !denies_all {
        return Err(ApiError::unsupported(&format!("{prefix}denyOut"), NO_RULES));
    }
    Ok(wire.internet.unwrap_or(true) && !denies_all)
}
