//! What the servers are told, and what the suites are told about them.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use atoll_e2e::server::Server;

use super::registry::{self, Registry};

/// One fresh key for each of two tenants.
pub(super) struct Keys {
    pub alpha: String,
    pub beta: String,
}

impl Keys {
    pub(super) fn new() -> Result<Self> {
        Ok(Self { alpha: new_key()?, beta: new_key()? })
    }
}

/// The server that all suites use.
pub(super) fn main(keys: &Keys, volumes: &Path, interpreter: &Path) -> String {
    format!(
        r#"
{tenants}

[limits]
allow_no_expiry = true

[runtime]
allowed_host_paths = ["{volumes}"]

[runtime.network]
uplink = "none"

[code_interpreter]
folder = "{interpreter}"

[[pool]]
name = "demo"
template = "base"
size = 3

[[pool]]
name = "some-template"
template = "base"
size = 1
"#,
        tenants = tenants(keys),
        volumes = volumes.display(),
        interpreter = interpreter.display(),
    )
}

/// A server of nothing real on which a quota is soon reached.
pub(super) fn small(keys: &Keys) -> String {
    format!(
        r#"
{tenants}

[limits]
sandboxes_per_tenant_max = 2

[runtime]
kind = "sim"

[code_interpreter]
build = false
"#,
        tenants = tenants(keys)
    )
}

fn tenants(keys: &Keys) -> String {
    format!(
        "[[tenants]]\nname = \"alpha\"\nkeys = [\"{}\"]\n\n\
         [[tenants]]\nname = \"beta\"\nkeys = [\"{}\"]",
        keys.alpha, keys.beta
    )
}

/// The variables that tests/conformance/README.md lists.
pub(super) fn environment(
    server: &Server,
    small: &Server,
    keys: &Keys,
    volumes: &Path,
    registry: &Registry,
) -> Vec<(&'static str, String)> {
    vec![
        ("ATOLL_URL", server.url()),
        ("ATOLL_API_KEY", keys.alpha.clone()),
        ("ATOLL_API_KEY_B", keys.beta.clone()),
        ("ATOLL_TEST_IMAGE", "base".to_owned()),
        ("ATOLL_HOST_VOLUME_DIR", volumes.display().to_string()),
        ("ATOLL_REGISTRY_IMAGE", registry.image()),
        ("ATOLL_REGISTRY_USER", registry::USER.to_owned()),
        ("ATOLL_REGISTRY_PASSWORD", registry::PASSWORD.to_owned()),
        ("ATOLL_SMALL_URL", small.url()),
        ("ATOLL_SMALL_API_KEY", keys.alpha.clone()),
        ("E2B_API_URL", server.url()),
        ("E2B_SANDBOX_URL", server.url()),
        ("E2B_VOLUME_API_URL", server.url()),
        ("E2B_API_KEY", keys.alpha.clone()),
        ("E2B_API_KEY_B", keys.beta.clone()),
    ]
}

/// A fresh key in the shape that every door takes.
fn new_key() -> Result<String> {
    let mut random = [0_u8; 20];
    let mut source = std::fs::File::open("/dev/urandom").context("can't open /dev/urandom")?;
    source.read_exact(&mut random).context("can't read /dev/urandom")?;
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("e2b_{hex}"))
}
