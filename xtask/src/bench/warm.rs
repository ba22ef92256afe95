//! Atoll as the E2B SDKs drive it: sandboxes from stock next to sandboxes from nothing, code, and
//! template builds.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use atoll_e2e::e2b::{self, Made};
use atoll_e2e::http::Client;
use serde_json::{Value, json};

use super::baseline::Runtimes;
use super::series::Series;

/// The pools that are measured, and the templates they keep ready.
const POOL: &str = "bench-warm";
const CODE_POOL: &str = "bench-code";
const CODE: &str = "code-interpreter";
/// Stock of each; sandboxes are claimed one after the other, so little is enough.
const STOCK: usize = 4;
const READY_WITHIN: Duration = Duration::from_secs(900);

/// Measures everything that is warm, `rounds` times, and what it is compared with.
pub(super) fn measure(
    client: &mut Client,
    runtimes: &mut Runtimes,
    rounds: usize,
) -> Result<Vec<Series>> {
    let mut fork = Series::new("fork+exec beside the warm rounds");
    let mut cold = Lives::new("cold");
    let mut warm = Lives::new("warm");
    for _ in 0..rounds {
        fork.time(|| runtimes.fork_exec())?;
        cold.one(client, "base")?;
    }
    set_pool(client, POOL, "base", STOCK)?;
    for _ in 0..rounds {
        wait_stock(client, POOL, STOCK)?;
        fork.time(|| runtimes.fork_exec())?;
        warm.one(client, POOL)?;
    }
    set_pool(client, POOL, "base", 0)?;
    let mut rows = vec![fork];
    rows.extend(cold.rows());
    rows.extend(warm.rows());
    rows.extend(code(client, rounds.min(20))?);
    rows.extend(builds(client, rounds.min(5))?);
    Ok(rows)
}

/// The parts of one sandbox's life.
struct Lives {
    create: Series,
    first: Series,
    exec: Series,
}

impl Lives {
    fn new(kind: &str) -> Self {
        let series = |what: &str| Series::new(&format!("e2b {kind}: {what}"));
        Self {
            create: series("create"),
            first: series("create -> first command"),
            exec: series("exec round trip"),
        }
    }

    fn one(&mut self, client: &mut Client, template: &str) -> Result<()> {
        let start = Instant::now();
        let made = self.create.time(|| e2b::create(client, template, &Value::Null))?;
        exec(client, &made)?;
        self.first.push(start.elapsed());
        self.exec.time(|| exec(client, &made))?;
        e2b::kill(client, &made.id)
    }

    fn rows(self) -> [Series; 3] {
        [self.first, self.create, self.exec]
    }
}

/// The least that a process can do, as in the other rows.
fn exec(client: &mut Client, made: &Made) -> Result<()> {
    let request = json!({ "process": { "cmd": "/bin/true", "args": [] }, "stdin": false });
    let ran = e2b::start(client, made, &request)?;
    ensure!(ran.code == Some(0), "{ran:?}");
    Ok(())
}

/// Code on sandboxes with kernels that wait for it, and on others.
fn code(client: &mut Client, rounds: usize) -> Result<Vec<Series>> {
    let mut cold = Series::new("code cold: create -> first result");
    let mut warm = Series::new("code warm: create -> first result");
    let mut first = Series::new("code warm: first run_code");
    let mut second = Series::new("code warm: second run_code");
    // The template may still be in the making.
    let made = e2b::create(client, CODE, &Value::Null)?;
    e2b::kill(client, &made.id)?;
    for _ in 0..rounds.min(5) {
        let start = Instant::now();
        let made = e2b::create(client, CODE, &Value::Null)?;
        run_code(client, &made)?;
        cold.push(start.elapsed());
        e2b::kill(client, &made.id)?;
    }
    set_pool(client, CODE_POOL, CODE, 1)?;
    for _ in 0..rounds {
        wait_stock(client, CODE_POOL, 1)?;
        let start = Instant::now();
        let made = e2b::create(client, CODE_POOL, &Value::Null)?;
        first.time(|| run_code(client, &made))?;
        warm.push(start.elapsed());
        second.time(|| run_code(client, &made))?;
        e2b::kill(client, &made.id)?;
    }
    set_pool(client, CODE_POOL, CODE, 0)?;
    Ok(vec![cold, warm, first, second])
}

fn run_code(client: &mut Client, made: &Made) -> Result<()> {
    let events = e2b::run_code(client, made, "1 + 1")?;
    let result = events.iter().find(|event| event["type"] == "result");
    ensure!(result.is_some_and(|event| event["text"] == "2"), "{events:?}");
    Ok(())
}

/// The same template, built anew and from what is kept of the last build.
fn builds(client: &mut Client, rounds: usize) -> Result<Vec<Series>> {
    let mut anew = Series::new("template build, nothing kept");
    let mut again = Series::new("template build, all kept");
    for _ in 0..rounds {
        anew.time(|| build(client, true))?;
        again.time(|| build(client, false))?;
    }
    Ok(vec![anew, again])
}

fn build(client: &mut Client, force: bool) -> Result<()> {
    let name = json!({ "name": "bench-build" });
    let made = client.json("POST", "/v3/templates", Some(&name))?;
    let id = |key: &str| made[key].as_str().with_context(|| format!("no {key} in {made}"));
    let (template, build) = (id("templateID")?, id("buildID")?);
    let step = |command: &str| json!({ "type": "RUN", "args": [command], "force": force });
    let recipe = json!({
        "fromTemplate": "base",
        "force": force,
        "steps": [step("seq 1000 > numbers"), step("mkdir more && cp numbers more")],
    });
    let path = format!("/v2/templates/{template}/builds/{build}");
    client.json("POST", &path, Some(&recipe))?;
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let path = format!("/templates/{template}/builds/{build}/status?logsOffset=0");
        let status = client.json("GET", &path, None)?;
        match status["status"].as_str() {
            Some("ready") => return Ok(()),
            Some("error") => bail!("the build failed: {status}"),
            _ => ensure!(Instant::now() < deadline, "the build takes too long: {status}"),
        }
    }
}

fn set_pool(client: &mut Client, name: &str, template: &str, size: usize) -> Result<()> {
    let body = json!({ "template": template, "size": size });
    client.json("PUT", &format!("/atoll/v1/pools/{name}"), Some(&body)).map(drop)
}

fn wait_stock(client: &mut Client, name: &str, count: usize) -> Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let pools = client.json("GET", "/atoll/v1/pools", None)?;
        let pools = pools.as_array().context("no list of pools")?;
        let pool = pools.iter().find(|pool| pool["name"] == name).context("the pool is gone")?;
        if pool["ready"].as_u64().is_some_and(|ready| ready as usize >= count) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the pool does not fill up: {pool}");
        // Looking costs the server time that filling needs.
        std::thread::sleep(Duration::from_millis(2));
    }
}
