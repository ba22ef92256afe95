//! The published OpenSandbox and E2B packages against servers of our own: two tenants, warm
//! pools, a private registry on loopback, and a look at what is left behind.

mod registry;
mod sdk;
mod settings;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use atoll_e2e::http::Client;
use atoll_e2e::leftovers;
use atoll_e2e::programs::Programs;
use atoll_e2e::server::Server;
use serde_json::{Value, json};

use crate::command::target;
use crate::{build, packages};
use registry::Registry;
use settings::Keys;

/// How long the code interpreter's packages may take to arrive, once for a machine.
const INTERPRETER_PATIENCE: Duration = Duration::from_secs(900);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Runs every suite; later ones also when an earlier one fails.
pub(crate) fn run() -> Result<()> {
    packages::ensure(packages::TEST)?;
    let programs = build::for_tests()?;
    let home = target().join("conformance");
    std::fs::create_dir_all(&home).context("can't create target/conformance")?;
    let suites = sdk::install(&home)?;
    let scratch = tempfile::Builder::new().prefix("run-").tempdir_in(&home)?;
    let folder = scratch.path();
    let result = in_folder(&programs, folder, &suites);
    // What a failed run has left would outlive its folder.
    leftovers::sweep(&folder.join("data"));
    result
}

fn in_folder(programs: &Programs, folder: &Path, suites: &[sdk::Installed]) -> Result<()> {
    let registry = Registry::start(&folder.join("registry"))?;
    let volumes = folder.join("volumes");
    let small_folder = folder.join("small");
    for made in [&volumes, &small_folder] {
        std::fs::create_dir_all(made).with_context(|| format!("can't make {}", made.display()))?;
    }
    let keys = Keys::new()?;
    let interpreter = build::interpreter_folder()?;
    let server = Server::start(programs, folder, &settings::main(&keys, &volumes, &interpreter))?;
    let small = Server::start(programs, &small_folder, &settings::small(&keys))?;
    wait_for_interpreter(&server, &keys.alpha)?;
    let environment = settings::environment(&server, &small, &keys, &volumes, &registry);
    let mut failures = Vec::new();
    let mut note = |what: &str, result: Result<()>| {
        failures.extend(result.err().map(|error| format!("{what}: {error:#}")));
    };
    for suite in suites {
        note(suite.title, suite.run(&environment));
    }
    for key in [&keys.alpha, &keys.beta] {
        note("sandboxes left", no_sandboxes(&server, key));
    }
    note("sandboxes left on the small server", no_sandboxes(&small, &keys.alpha));
    let tail = server.log_tail();
    note("stopping", server.stop());
    note("stopping the small server", small.stop());
    note("left on the machine", leftovers::none(&folder.join("data")));
    if failures.is_empty() {
        return Ok(());
    }
    println!("\nthe server's last words:\n{tail}");
    bail!("{}", failures.join("; "))
}

/// The template is built in the background at the first start on a machine.
fn wait_for_interpreter(server: &Server, key: &str) -> Result<()> {
    let mut client = Client::new(server.address, &[("X-API-Key", key)]);
    let wish = json!({ "templateID": "code-interpreter-v1", "timeout": 60 }).to_string();
    let deadline = Instant::now() + INTERPRETER_PATIENCE;
    println!("waiting for the template code-interpreter");
    loop {
        let path = "/v2/sandboxes";
        let answer = client.send("POST", path, "application/json", wish.as_bytes())?;
        if answer.status == 201 {
            let made: Value = serde_json::from_slice(&answer.body).context("no JSON")?;
            let id = made["sandboxID"].as_str().context("a sandbox without an id")?;
            client.send("DELETE", &format!("/sandboxes/{id}"), "", &[])?;
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("there is no template code-interpreter: {}", answer.explain());
        }
        std::thread::sleep(LOOK_EVERY);
    }
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
    let left: Vec<String> = left.map(Value::to_string).collect();
    ensure!(left.is_empty(), "the suites did not remove {}", left.join(", "));
    Ok(())
}
