//! Numbers for Prometheus, rendered by hand: a dozen series need no library.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use atoll_control::PoolStatus;
use atoll_core::Phase;
use atoll_engine::{EngineStats, Latency};

/// Upper bounds of the creation histogram, in milliseconds.
const CREATE_MILLIS: [u64; 12] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000];

/// What has been counted so far.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// By door and status; both come from small fixed sets.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    create_buckets: [AtomicU64; CREATE_MILLIS.len()],
    create_micros: AtomicU64,
    create_count: AtomicU64,
    panics: AtomicU64,
}

impl Metrics {
    /// One request was answered.
    pub(crate) fn answered(&self, door: &'static str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((door, status)).or_default() += 1;
    }

    /// One sandbox was created through a door, in this time.
    pub(crate) fn created(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        for (bucket, bound) in self.create_buckets.iter().zip(CREATE_MILLIS) {
            if micros <= bound * 1000 {
                bucket.fetch_add(1, Relaxed);
            }
        }
        self.create_micros.fetch_add(micros, Relaxed);
        self.create_count.fetch_add(1, Relaxed);
    }

    /// A request handler panicked: a bug of ours.
    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Relaxed);
    }

    /// The text that Prometheus reads.
    pub(crate) fn render(
        &self,
        phases: &BTreeMap<&'static str, usize>,
        engine: &EngineStats,
        pools: &[PoolStatus],
    ) -> String {
        let mut text = String::new();
        head(&mut text, "atoll_sandboxes", "gauge", "Sandboxes by phase.");
        for (phase, count) in phases {
            line(&mut text, &format!("atoll_sandboxes{{phase=\"{phase}\"}}"), *count as u64);
        }
        head(&mut text, "atoll_requests_total", "counter", "Answered requests.");
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ((door, status), count) in requests {
            let name = format!("atoll_requests_total{{door=\"{door}\",status=\"{status}\"}}");
            line(&mut text, &name, count);
        }
        self.render_creations(&mut text);
        render_claims(&mut text, &engine.claims);
        render_pools(&mut text, pools);
        for (name, kind, help, value) in [
            ("atoll_creates_total", "counter", "Sandboxes accepted.", engine.creates),
            ("atoll_kills_total", "counter", "Sandboxes ended on wish.", engine.kills),
            ("atoll_failures_total", "counter", "Sandboxes that failed.", engine.failures),
            ("atoll_actions_in_flight", "gauge", "Runtime actions now.", engine.in_flight),
            ("atoll_commits_total", "counter", "Commits of records.", engine.commits),
            (
                "atoll_commit_failures_total",
                "counter",
                "Commits that failed.",
                engine.commit_failures,
            ),
            ("atoll_bugs_total", "counter", "Panics in requests.", self.panics.load(Relaxed)),
        ] {
            head(&mut text, name, kind, help);
            line(&mut text, name, value);
        }
        text
    }

    fn render_creations(&self, text: &mut String) {
        let name = "atoll_create_seconds";
        head(text, name, "histogram", "Time until a creation was answered.");
        for (bucket, bound) in self.create_buckets.iter().zip(CREATE_MILLIS) {
            let seconds = Duration::from_millis(bound).as_secs_f64();
            line(text, &format!("{name}_bucket{{le=\"{seconds}\"}}"), bucket.load(Relaxed));
        }
        let count = self.create_count.load(Relaxed);
        line(text, &format!("{name}_bucket{{le=\"+Inf\"}}"), count);
        let sum = Duration::from_micros(self.create_micros.load(Relaxed)).as_secs_f64();
        // Writing to a string can't fail.
        let _ = writeln!(text, "{name}_sum {sum}");
        line(text, &format!("{name}_count"), count);
    }
}

fn render_claims(text: &mut String, claims: &Latency) {
    let name = "atoll_claim_seconds";
    head(text, name, "histogram", "Time from a claim of stock until the sandbox runs.");
    for (count, bound) in claims.buckets.iter().zip(Latency::BOUNDS) {
        let seconds = Duration::from_micros(bound).as_secs_f64();
        line(text, &format!("{name}_bucket{{le=\"{seconds}\"}}"), *count);
    }
    line(text, &format!("{name}_bucket{{le=\"+Inf\"}}"), claims.count);
    let sum = Duration::from_micros(claims.micros).as_secs_f64();
    let _ = writeln!(text, "{name}_sum {sum}");
    line(text, &format!("{name}_count"), claims.count);
}

/// Names of pools are plain words, so they need no escaping.
fn render_pools(text: &mut String, pools: &[PoolStatus]) {
    type Read = fn(&PoolStatus) -> u64;
    let series: [(&str, &str, &str, Read); 7] = [
        ("atoll_pool_size", "gauge", "Sandboxes to keep ready.", |s| s.pool.size as u64),
        ("atoll_pool_ready", "gauge", "Sandboxes ready to be claimed.", |s| s.ready as u64),
        ("atoll_pool_starting", "gauge", "Sandboxes being made.", |s| s.starting as u64),
        ("atoll_pool_waiting", "gauge", "Callers waiting for stock.", |s| s.waiting as u64),
        ("atoll_pool_hits_total", "counter", "Creations from stock.", |s| s.hits),
        ("atoll_pool_replaced_total", "counter", "Stock replaced in its place.", |s| s.replaced),
        ("atoll_pool_misses_total", "counter", "Creations without stock.", |s| s.misses),
    ];
    for (name, kind, help, read) in series {
        head(text, name, kind, help);
        for status in pools {
            let pool = &status.pool.name;
            line(text, &format!("{name}{{pool=\"{pool}\"}}"), read(status));
        }
    }
}

/// The word for a phase in metrics.
pub(crate) fn phase_label(phase: Phase) -> &'static str {
    match phase {
        Phase::Queued => "queued",
        Phase::Starting => "starting",
        Phase::Running => "running",
        Phase::Pausing => "pausing",
        Phase::Paused => "paused",
        Phase::Resuming => "resuming",
        Phase::Stopping => "stopping",
        Phase::Ended => "ended",
        Phase::Failed => "failed",
        Phase::Gone => "gone",
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, series: &str, value: u64) {
    let _ = writeln!(text, "{series} {value}");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use atoll_control::Pool;
    use atoll_core::{ImageSource, SandboxSpec, Source};

    use super::*;

    fn spec() -> SandboxSpec {
        let image = ImageSource { reference: "base".to_owned(), auth: None };
        SandboxSpec::new(Source::Image(image))
    }

    #[test]
    fn a_histogram_counts_upwards() {
        let metrics = Metrics::default();
        metrics.created(Duration::from_millis(7));
        metrics.created(Duration::from_secs(60));
        metrics.answered("opensandbox", 202);
        let pool = PoolStatus {
            pool: Arc::new(Pool { name: "warm".to_owned(), spec: spec(), size: 4 }),
            ready: 3,
            starting: 1,
            waiting: 0,
            hits: 9,
            replaced: 1,
            misses: 2,
            trouble: None,
        };
        let phases = BTreeMap::from([("running", 3)]);
        let text = metrics.render(&phases, &EngineStats::default(), &[pool]);
        for expected in [
            "atoll_sandboxes{phase=\"running\"} 3",
            "atoll_requests_total{door=\"opensandbox\",status=\"202\"} 1",
            "atoll_create_seconds_bucket{le=\"0.005\"} 0",
            "atoll_create_seconds_bucket{le=\"0.01\"} 1",
            "atoll_create_seconds_bucket{le=\"30\"} 1",
            "atoll_create_seconds_bucket{le=\"+Inf\"} 2",
            "atoll_create_seconds_count 2",
            "atoll_pool_ready{pool=\"warm\"} 3",
            "atoll_pool_hits_total{pool=\"warm\"} 9",
            "atoll_pool_replaced_total{pool=\"warm\"} 1",
            "atoll_claim_seconds_bucket{le=\"+Inf\"} 0",
        ] {
            assert!(text.lines().any(|line| line == expected), "{expected} in {text}");
        }
    }
}
