//! `atoll doctor`.

use std::process::ExitCode;

use atoll_runtime_local::doctor::{self, Check, Verdict};
use serde_json::{Value, json};

use crate::args::Output;
use crate::error::Error;
use crate::output;

/// Looks at this machine; fails when it can't run sandboxes.
pub(crate) fn run(format: Output) -> Result<ExitCode, Error> {
    let checks = doctor::check();
    match format {
        Output::Json => output::json(&checks.iter().map(as_json).collect())?,
        Output::Table => {
            let rows: Vec<Vec<String>> = checks.iter().map(row).collect();
            output::text(&output::table(&["CHECK", "VERDICT", "FOUND", "REMEDY"], &rows))?;
        }
    }
    let able = checks.iter().all(|check| check.verdict != Verdict::Missing);
    Ok(if able { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Limited => "limited",
        Verdict::Missing => "missing",
    }
}

fn row(check: &Check) -> Vec<String> {
    let cells = [check.name, word(check.verdict), &check.found, check.remedy];
    cells.map(output::plain).to_vec()
}

fn as_json(check: &Check) -> Value {
    json!({
        "name": check.name,
        "verdict": word(check.verdict),
        "found": check.found,
        "remedy": check.remedy,
    })
}
