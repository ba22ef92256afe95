//! Atoll as the E2B SDKs drive it: sandboxes from stock next to sandboxes from nothing, code, and
//! template builds.

use std::time::Instant;

use anyhow::{Result, ensure};
use atoll_e2e::e2b::{self, Made};
use atoll_e2e::http::Client;
use serde_json::{Value, json};

use super::Shuffle;
use super::baseline::Runtimes;
use super::report::{Ratio, Target};
use super::series::Series;
use super::stock::{Claims, Stock};

const CODE: &str = "code-interpreter";
/// Code needs seconds and builds need more, so there are fewer of them.
const CODE_ROUNDS_MAX: usize = 20;
const BUILD_ROUNDS_MAX: usize = 5;

/// What was measured, and what follows from it.
#[derive(Default)]
pub(super) struct Warm {
    pub rows: Vec<Series>,
    pub ratios: Vec<Ratio>,
    pub targets: Vec<Target>,
}

/// Measures everything that is warm, `rounds` times, and what it is compared with.
pub(super) fn measure(client: &mut Client, runtimes: &Runtimes, rounds: usize) -> Result<Warm> {
    let mut fork = Series::new("fork+exec beside the warm rounds");
    let mut warm = Warm::default();
    warm.commands(client, rounds, || fork.time(|| runtimes.fork_exec()))?;
    warm.code(client, rounds.min(CODE_ROUNDS_MAX), || fork.time(|| runtimes.fork_exec()))?;
    warm.builds(client, rounds.min(BUILD_ROUNDS_MAX))?;
    // The machine may have been busier or idler when the first rows were measured.
    let beside = fork.percentile(50);
    warm.rows.insert(0, fork);
    for row in &mut warm.rows {
        row.fork_beside = Some(beside);
    }
    Ok(warm)
}

/// A wish that no stock fits, so that the sandbox is made from nothing while a pool is full: a
/// thousandth of a core more than anybody gets. It is alike in all that costs time.
fn from_nothing() -> Value {
    json!({ "metadata": { "e2b.agents.kruise.io/cpu-limit": "1001m" } })
}

impl Warm {
    fn commands(
        &mut self,
        client: &mut Client,
        rounds: usize,
        mut fork: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let (mut cold, mut warm) = (Lives::new("cold"), Lives::new("warm"));
        let mut claim = Series::new("e2b warm: claim (server side)");
        let stock = Stock::declare(client, "bench-warm", "base", 4)?;
        let mut random = Shuffle::new();
        for _ in 0..rounds {
            for turn in random.order::<3>() {
                // Nobody is measured while the pool is being filled.
                stock.wait(client)?;
                match turn {
                    0 => fork()?,
                    1 => cold.one(client, "base", &from_nothing())?,
                    _ => {
                        let before = Claims::read(client)?;
                        warm.one(client, stock.pool, &Value::Null)?;
                        claim.push(Claims::read(client)?.one_since(&before)?);
                    }
                }
            }
        }
        stock.end(client, rounds)?;
        self.ratios.push(Ratio::new(
            "warm / cold: create -> first command",
            &warm.first,
            &cold.first,
        ));
        self.ratios.push(Ratio::new("warm / cold: create", &warm.create, &cold.create));
        let round_trips = warm.first.percentile(50) / warm.exec.percentile(50);
        self.targets.push(Target {
            name: "warm create -> first command, in exec round trips",
            value: round_trips,
            at_most: 3.0,
        });
        self.rows.extend(cold.rows());
        self.rows.extend(warm.rows());
        self.rows.push(claim);
        Ok(())
    }

    /// Code on sandboxes with kernels that wait for it, and on others.
    fn code(
        &mut self,
        client: &mut Client,
        rounds: usize,
        mut fork: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut cold = Code::new("cold");
        let mut warm = Code::new("warm");
        let stock = Stock::declare(client, "bench-code", CODE, 1)?;
        let mut random = Shuffle::new();
        for _ in 0..rounds {
            for turn in random.order::<3>() {
                stock.wait(client)?;
                match turn {
                    0 => fork()?,
                    1 => cold.one(client, CODE, &from_nothing())?,
                    _ => warm.one(client, stock.pool, &Value::Null)?,
                }
            }
        }
        stock.end(client, rounds)?;
        let name = "code warm / cold: create -> first result";
        self.ratios.push(Ratio::new(name, &warm.result, &cold.result));
        self.targets.push(Target {
            name: "code warm: first run_code above second, in ms",
            value: warm.first.percentile(50) - warm.second.percentile(50),
            at_most: 10.0,
        });
        self.rows.extend(cold.rows());
        self.rows.extend(warm.rows());
        Ok(())
    }

    /// The same template, built anew and from what is kept of the last build.
    fn builds(&mut self, client: &mut Client, rounds: usize) -> Result<()> {
        let mut anew = Series::new("template build, nothing kept");
        let mut again = Series::new("template build, all kept");
        for _ in 0..rounds {
            anew.time(|| build(client, true))?;
            again.time(|| build(client, false))?;
        }
        self.ratios.push(Ratio::new("template build: all / nothing kept", &again, &anew));
        self.rows.extend([anew, again]);
        Ok(())
    }
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

    fn one(&mut self, client: &mut Client, template: &str, wish: &Value) -> Result<()> {
        let start = Instant::now();
        let made = self.create.time(|| e2b::create(client, template, wish))?;
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

/// Two pieces of code in one new sandbox.
struct Code {
    result: Series,
    first: Series,
    second: Series,
}

impl Code {
    fn new(kind: &str) -> Self {
        let series = |what: &str| Series::new(&format!("code {kind}: {what}"));
        Self {
            result: series("create -> first result"),
            first: series("first run_code"),
            second: series("second run_code"),
        }
    }

    fn one(&mut self, client: &mut Client, template: &str, wish: &Value) -> Result<()> {
        let start = Instant::now();
        let made = e2b::create(client, template, wish)?;
        self.first.time(|| run_code(client, &made))?;
        self.result.push(start.elapsed());
        self.second.time(|| run_code(client, &made))?;
        e2b::kill(client, &made.id)
    }

    fn rows(self) -> [Series; 3] {
        [self.result, self.first, self.second]
    }
}

fn run_code(client: &mut Client, made: &Made) -> Result<()> {
    let events = e2b::run_code(client, made, "1 + 1")?;
    let result = events.iter().find(|event| event["type"] == "result");
    ensure!(result.is_some_and(|event| event["text"] == "2"), "{events:?}");
    Ok(())
}

fn build(client: &mut Client, force: bool) -> Result<()> {
    let step = |command: &str| json!({ "type": "RUN", "args": [command], "force": force });
    let recipe = json!({
        "fromTemplate": "base",
        "force": force,
        "steps": [step("seq 1000 > numbers"), step("mkdir more && cp numbers more")],
    });
    e2b::build(client, "bench-build", &recipe)
}
