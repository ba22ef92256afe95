//! `cargo xtask bench`: how long things take, next to what the machine itself needs for less.
//!
//! Every round runs every contender once, in random order, so that a busy moment of the machine
//! hits all of them alike: trust the ratios before the milliseconds.

mod atoll;
mod baseline;
mod memory;
mod report;
mod series;
mod stock;
mod warm;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::command::{is_root, target};
use crate::{build, packages};
use atoll::Atoll;
use atoll_e2e::programs::Programs;
use atoll_e2e::server::Server;
use baseline::{Runtimes, TRUE_PROGRAM};
use report::Report;
use series::Series;

/// How much is measured.
struct Plan {
    rounds: usize,
    burst: usize,
    busy_calls: usize,
    held: usize,
    json: PathBuf,
    /// Measure the unoptimised test build, to try the benchmark itself.
    debug: bool,
    /// Measure the programs that `ATOLL_BIN` and `ATOLL_AGENT` name, such as another version's.
    given: bool,
}

impl Plan {
    fn parse(arguments: &[String]) -> Result<Self> {
        let json = target().join("bench.json");
        let mut plan = Self {
            rounds: 100,
            burst: 100,
            busy_calls: 500,
            held: 200,
            json,
            debug: false,
            given: false,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--quick" => {
                    (plan.rounds, plan.burst, plan.busy_calls, plan.held) = (15, 20, 50, 20);
                }
                "--json" => plan.json = rest.next().context("--json needs a file name")?.into(),
                "--debug" => plan.debug = true,
                "--given" => plan.given = true,
                other => bail!("bench knows --quick, --debug, --given, --json FILE, not {other:?}"),
            }
        }
        Ok(plan)
    }
}

/// Measures, prints a table and writes JSON.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let plan = Plan::parse(arguments)?;
    if !is_root() {
        bail!("sandboxes need root: run it as root");
    }
    packages::ensure(packages::BENCH)?;
    let programs = match (plan.given, plan.debug) {
        (true, _) => Programs::from_env()?,
        (false, true) => build::for_tests()?,
        (false, false) => build::release()?,
    };
    let scratch = tempfile::Builder::new().prefix("bench-").tempdir_in(target())?;
    let mut runtimes = Runtimes::prepare(scratch.path())?;
    let layout = baseline::layout(scratch.path());
    let config = atoll::config(&layout, &build::interpreter_folder()?);
    let server = Server::start(&programs, scratch.path(), &config)?;
    let mut atoll = Atoll::connect(&server, scratch.path())?;
    let result = measure(&plan, &mut runtimes, &mut atoll, &server);
    // Also after a failure: what was made is removed by its id.
    let removed = atoll.remove_all();
    let report = result.with_context(|| format!("the server's log:\n{}", server.log_tail()))?;
    removed?;
    server.stop()?;
    print!("{}", report.table());
    std::fs::write(&plan.json, format!("{:#}\n", report.json()))
        .with_context(|| format!("can't write {}", plan.json.display()))?;
    println!("\nwritten to {}", plan.json.display());
    Ok(())
}

fn measure(
    plan: &Plan,
    runtimes: &mut Runtimes,
    atoll: &mut Atoll,
    server: &Server,
) -> Result<Report> {
    let mut report = Report::default();
    println!("measuring {} rounds…", plan.rounds);
    report.rows.extend(rounds(plan.rounds, runtimes, atoll)?);
    println!("measuring {} at once…", plan.burst);
    report.rows.extend(atoll.burst(plan.burst)?);
    println!("measuring beside a long command…");
    report.rows.extend(atoll.busy(plan.busy_calls)?);
    println!("measuring warm pools, code and template builds…");
    let warm = warm::measure(atoll.client(), runtimes, plan.rounds)?;
    report.rows.extend(warm.rows);
    (report.ratios, report.targets) = (warm.ratios, warm.targets);
    println!("holding {} sandboxes…", plan.held);
    report.memory = Some(memory::measure(plan.held, atoll, server.pid())?);
    Ok(report)
}

/// One contender's turn adds to its own series.
type Turn = fn(&mut Runtimes, &mut Atoll, &mut [Series]) -> Result<()>;

fn rounds(count: usize, runtimes: &mut Runtimes, atoll: &mut Atoll) -> Result<Vec<Series>> {
    let turns: [Turn; 4] = [
        |runtimes, _, series| series[0].time(|| runtimes.fork_exec()),
        |runtimes, _, series| series[1].time(|| runtimes.crun.run()),
        |runtimes, _, series| series[2].time(|| runtimes.runc.run()),
        |_, atoll, series| atoll.life(&mut series[3..]),
    ];
    let names = [TRUE_PROGRAM, "crun run /bin/true", "runc run /bin/true"];
    let mut series: Vec<Series> =
        names.iter().chain(atoll::LIFE).map(|name| Series::new(name)).collect();
    let mut warm_up = series.clone();
    for turn in turns {
        turn(runtimes, atoll, &mut warm_up)?;
    }
    let mut random = Shuffle::new();
    for _ in 0..count {
        for index in random.order::<4>() {
            turns[index](runtimes, atoll, &mut series)?;
        }
    }
    Ok(series)
}

/// Random orders of contenders; statistics need no better source.
struct Shuffle(u64);

impl Shuffle {
    fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::from(since.subsec_nanos()) | 1)
    }

    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or_default() % below
    }

    fn order<const CONTENDERS: usize>(&mut self) -> [usize; CONTENDERS] {
        let mut order = std::array::from_fn(|index| index);
        for last in (1..order.len()).rev() {
            order.swap(last, self.next(last + 1));
        }
        order
    }
}
