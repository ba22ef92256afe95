//! The table for people and the JSON for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::memory::Memory;
use super::series::Series;

/// Everything measured; the first three rows are what the others are compared with.
#[derive(Default)]
pub(super) struct Report {
    pub rows: Vec<Series>,
    pub ratios: Vec<Ratio>,
    pub targets: Vec<Target>,
    pub memory: Option<Memory>,
}

/// How many times as long one thing takes as another, by their medians.
#[derive(Clone)]
pub(super) struct Ratio {
    name: &'static str,
    value: f64,
}

impl Ratio {
    pub(super) fn new(name: &'static str, this: &Series, other: &Series) -> Self {
        Self { name, value: this.percentile(50) / other.percentile(50) }
    }
}

/// Something that the project promises.
#[derive(Clone)]
pub(super) struct Target {
    pub name: &'static str,
    pub value: f64,
    pub at_most: f64,
}

impl Target {
    fn is_met(&self) -> bool {
        self.value <= self.at_most
    }
}

const COMPARED_WITH: [&str; 3] = ["fork", "crun", "runc"];

impl Report {
    /// A table of milliseconds and of ratios between medians.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "\n{:<38} {:>5} {:>8} {:>8} {:>8} {:>8}  {:>7} {:>7} {:>7}\n",
            "milliseconds", "n", "min", "p50", "p95", "p99", "x fork", "x crun", "x runc"
        );
        for row in &self.rows {
            let [fork, crun, runc] = self.ratios(row);
            writeln!(
                text,
                "{:<38} {:>5} {:>8.2} {:>8.2} {:>8.2} {:>8.2}  {fork:>7.2} {crun:>7.2} {runc:>7.2}",
                row.name,
                row.len(),
                row.min(),
                row.percentile(50),
                row.percentile(95),
                row.percentile(99),
            )
            .expect("writing to a string works");
        }
        if let Some(memory) = &self.memory {
            text.push_str(&memory.line());
            text.push('\n');
        }
        text.push_str(&self.verdicts());
        text
    }

    /// Lines for ratios and targets.
    fn verdicts(&self) -> String {
        let ratios =
            self.ratios.iter().map(|ratio| format!("{:<52} {:>8.3}", ratio.name, ratio.value));
        let targets = self.targets.iter().map(|target| {
            let Target { name, value, at_most } = target;
            let met = if target.is_met() { "yes" } else { "no" };
            format!("{name:<52} {value:>8.2}  at most {at_most}: {met}")
        });
        let sections =
            [("ratios of medians", ratios.collect::<Vec<_>>()), ("targets", targets.collect())];
        let told = sections.iter().filter(|(_, lines)| !lines.is_empty());
        told.map(|(title, lines)| format!("\n{title}\n{}\n", lines.join("\n"))).collect()
    }

    pub(super) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let mut value = row.json();
            for (name, ratio) in COMPARED_WITH.iter().zip(self.ratios(row)) {
                value[format!("times_{name}")] = json!(ratio);
            }
            value
        });
        let ratios = self.ratios.iter().map(|r| json!({ "name": r.name, "value": r.value }));
        let targets = self.targets.iter().map(|t| {
            json!({ "name": t.name, "value": t.value, "at_most": t.at_most, "met": t.is_met() })
        });
        json!({
            "rows": rows.collect::<Vec<_>>(),
            "ratios": ratios.collect::<Vec<_>>(),
            "targets": targets.collect::<Vec<_>>(),
            "memory": self.memory.as_ref().map(Memory::json),
        })
    }

    /// Plain processes are compared with those started beside, where there are such.
    fn ratios(&self, row: &Series) -> [f64; 3] {
        std::array::from_fn(|index| {
            let first = || self.rows.get(index).map_or(f64::NAN, |other| other.percentile(50));
            let beside = row.fork_beside.filter(|_| index == 0);
            row.percentile(50) / beside.unwrap_or_else(first)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Ratio, Report, Series, Target};

    fn series(millis: u64) -> Series {
        let mut series = Series::new("row");
        series.push(Duration::from_millis(millis));
        series
    }

    #[test]
    fn ratios_are_between_medians() {
        let mut rows = [2, 10, 20, 5, 5].map(series);
        rows[4].fork_beside = Some(1.0);
        let report = Report { rows: rows.to_vec(), ..Report::default() };
        let told = report.json();
        assert_eq!(told["rows"][3]["times_fork"], 2.5);
        assert_eq!(told["rows"][3]["times_runc"], 0.25);
        assert_eq!(told["rows"][4]["times_fork"], 5.0, "the one measured beside");
        assert_eq!(report.table().lines().count(), 7);
    }

    #[test]
    fn targets_are_met_or_not() {
        let target = |value| Target { name: "a promise", value, at_most: 3.0 };
        let report = Report {
            ratios: vec![Ratio::new("this / other", &series(1), &series(4))],
            targets: vec![target(3.0), target(3.1), target(f64::NAN)],
            ..Report::default()
        };
        let told = report.json();
        let met: Vec<_> = (0..3).map(|n| told["targets"][n]["met"] == true).collect();
        assert_eq!(met, [true, false, false], "what was not measured is not met");
        assert_eq!(told["ratios"][0]["value"], 0.25);
        assert_eq!(report.table().matches("at most 3: no").count(), 2);
    }
}
