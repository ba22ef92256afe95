//! Many durations of one thing.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

/// A named list of measurements.
#[derive(Clone)]
pub(super) struct Series {
    pub name: String,
    /// Median of plain processes started in the same rounds, in milliseconds.
    pub fork_beside: Option<f64>,
    values: Vec<Duration>,
}

impl Series {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), fork_beside: None, values: Vec::new() }
    }

    /// Runs `work` and keeps how long it took.
    pub(super) fn time<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = work()?;
        self.values.push(start.elapsed());
        Ok(result)
    }

    pub(super) fn push(&mut self, value: Duration) {
        self.values.push(value);
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The value that `percent` of all are not above, in milliseconds (nearest rank).
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).map_or(f64::NAN, |value| value.as_secs_f64() * 1e3)
    }

    pub(super) fn min(&self) -> f64 {
        self.values.iter().min().map_or(f64::NAN, |value| value.as_secs_f64() * 1e3)
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "name": self.name,
            "count": self.len(),
            "min_ms": self.min(),
            "p50_ms": self.percentile(50),
            "p95_ms": self.percentile(95),
            "p99_ms": self.percentile(99),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Series;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut series = Series::new("x");
        for value in (1..=100).rev() {
            series.push(Duration::from_millis(value));
        }
        let found =
            [series.min(), series.percentile(50), series.percentile(95), series.percentile(99)];
        assert_eq!(found, [1.0, 50.0, 95.0, 99.0]);
        assert!(Series::new("empty").percentile(50).is_nan());
    }
}
