//! The table for people and the JSON for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::memory::Memory;
use super::series::Series;

/// Everything measured; the first three rows are what the others are compared with.
#[derive(Default)]
pub(super) struct Report {
    pub rows: Vec<Series>,
    pub memory: Option<Memory>,
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
        text
    }

    pub(super) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let mut value = row.json();
            for (name, ratio) in COMPARED_WITH.iter().zip(self.ratios(row)) {
                value[format!("times_{name}")] = json!(ratio);
            }
            value
        });
        json!({
            "rows": rows.collect::<Vec<_>>(),
            "memory": self.memory.as_ref().map(Memory::json),
        })
    }

    fn ratios(&self, row: &Series) -> [f64; 3] {
        std::array::from_fn(|index| {
            let other = self.rows.get(index).map_or(f64::NAN, |other| other.percentile(50));
            row.percentile(50) / other
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Report, Series};

    #[test]
    fn ratios_are_between_medians() {
        let rows = [2, 10, 20, 5].map(|ms| {
            let mut series = Series::new("row");
            series.push(Duration::from_millis(ms));
            series
        });
        let report = Report { rows: rows.to_vec(), memory: None };
        assert_eq!(report.json()["rows"][3]["times_fork"], 2.5);
        assert_eq!(report.json()["rows"][3]["times_runc"], 0.25);
        assert_eq!(report.table().lines().count(), 6);
    }
}
