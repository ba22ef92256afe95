//! Who asks, and which port of a sandbox is meant.

use atoll_core::TenantId;

/// On whose behalf a sandbox is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A tenant with a valid key: everything of that tenant.
    Tenant(TenantId),
    /// The bearer of one sandbox's access token: that sandbox's ports, nothing else.
    Token(String),
    /// A route that the server itself signed and has just checked.
    Signed,
}

/// A port as clients number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// The agent, however the runtime reaches it.
    Agent,
    /// A TCP port inside the sandbox.
    Tcp(u16),
}
