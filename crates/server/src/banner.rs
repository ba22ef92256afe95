//! What an operator needs to see at the start.

use std::net::SocketAddr;

/// The lines to print: where the server is, and what to paste to use it.
pub(crate) fn banner(address: SocketAddr, key: Option<&str>) -> String {
    let reachable = if address.ip().is_unspecified() {
        SocketAddr::from(([127, 0, 0, 1], address.port()))
    } else {
        address
    };
    let shown = key.unwrap_or("<a key of one of the configured tenants>");
    format!(
        "atoll {version} listens on http://{address}\n\
         \n\
         export OPEN_SANDBOX_DOMAIN={reachable}\n\
         export OPEN_SANDBOX_API_KEY={shown}\n\
         export E2B_API_URL=http://{reachable}\n\
         export E2B_SANDBOX_URL=http://{reachable}\n\
         export E2B_VOLUME_API_URL=http://{reachable}\n\
         export E2B_API_KEY={shown}\n\
         export ATOLL_URL=http://{reachable}\n\
         export ATOLL_API_KEY={shown}\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}
