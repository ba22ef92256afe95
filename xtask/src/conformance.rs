//! The published OpenSandbox packages against a server of our own: two tenants, a private
//! registry on loopback, and a look at what is left behind.

mod registry;
mod sdk;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use atoll_e2e::http::Client;
use atoll_e2e::leftovers;
use atoll_e2e::server::Server;

use crate::command::target;
use crate::{build, packages};
use registry::Registry;

/// Runs both suites; the second also when the first fails.
pub(crate) fn run() -> Result<()> {
    packages::ensure(packages::TEST)?;
    let programs = build::for_tests()?;
    let home = target().join("conformance");
    std::fs::create_dir_all(&home).context("can't create target/conformance")?;
    let python = sdk::python(&home)?;
    let node = sdk::node(&home)?;
    let scratch = tempfile::Builder::new().prefix("run-").tempdir_in(&home)?;
    let folder = scratch.path();
    let registry = Registry::start(&folder.join("registry"))?;
    let volumes = folder.join("volumes");
    std::fs::create_dir_all(&volumes).context("can't create the folder for host volumes")?;
    let keys = [new_key()?, new_key()?];
    let server = Server::start(&programs, folder, &config(&keys, &volumes))?;
    let environment = [
        ("ATOLL_URL", server.url()),
        ("ATOLL_API_KEY", keys[0].clone()),
        ("ATOLL_API_KEY_B", keys[1].clone()),
        ("ATOLL_TEST_IMAGE", "base".to_owned()),
        ("ATOLL_HOST_VOLUME_DIR", volumes.display().to_string()),
        ("ATOLL_REGISTRY_IMAGE", registry.image()),
        ("ATOLL_REGISTRY_USER", registry::USER.to_owned()),
        ("ATOLL_REGISTRY_PASSWORD", registry::PASSWORD.to_owned()),
    ];
    let mut failures = Vec::new();
    let mut note = |what: &str, result: Result<()>| {
        failures.extend(result.err().map(|error| format!("{what}: {error:#}")));
    };
    note("Python packages", sdk::run_pytest(&python, &environment));
    note("JavaScript package", sdk::run_node(&node, &environment));
    for key in &keys {
        note("sandboxes left", no_sandboxes(&server, key));
    }
    let tail = server.log_tail();
    note("stopping", server.stop());
    note("left on the machine", leftovers::none(&folder.join("data")));
    if failures.is_empty() {
        return Ok(());
    }
    println!("\nthe server's last words:\n{tail}");
    bail!("{}", failures.join("; "))
}

fn no_sandboxes(server: &Server, key: &str) -> Result<()> {
    let mut client = Client::new(server.address, &[("OPEN-SANDBOX-API-KEY", key)]);
    let list = client.json("GET", "/v1/sandboxes?pageSize=200", None)?;
    let items = list["items"].as_array().context("the list has no items")?;
    if items.is_empty() {
        return Ok(());
    }
    // Removed all the same, so that the run leaves nothing behind on the machine.
    for item in items {
        let id = item["id"].as_str().context("a sandbox without an id")?;
        client.json("DELETE", &format!("/v1/sandboxes/{id}"), None)?;
    }
    // One that failed to start is kept by the server, and its client never learns its id.
    let left = items.iter().filter(|item| item["status"]["state"] != "Failed");
    let left: Vec<String> = left.map(serde_json::Value::to_string).collect();
    ensure!(left.is_empty(), "the suites did not remove {}", left.join(", "));
    Ok(())
}

fn config(keys: &[String; 2], volumes: &Path) -> String {
    format!(
        r#"
[[tenants]]
name = "alpha"
keys = ["{}"]

[[tenants]]
name = "beta"
keys = ["{}"]

[limits]
allow_no_expiry = true

[runtime]
allowed_host_paths = ["{}"]

[runtime.network]
uplink = "none"
"#,
        keys[0],
        keys[1],
        volumes.display()
    )
}

/// A fresh key in the shape that every door takes.
fn new_key() -> Result<String> {
    use std::io::Read;
    let mut random = [0_u8; 20];
    let mut source = std::fs::File::open("/dev/urandom").context("can't open /dev/urandom")?;
    source.read_exact(&mut random).context("can't read /dev/urandom")?;
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("e2b_{hex}"))
}
