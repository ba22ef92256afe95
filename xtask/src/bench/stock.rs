//! A warm pool for the benchmark, and what the server itself says about claims.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use atoll_e2e::http::Client;
use serde_json::{Value, json};

/// The code interpreter may still be in the making.
const READY_WITHIN: Duration = Duration::from_secs(900);
/// Looking costs the server time that filling needs.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A pool that was declared and is to be emptied again.
pub(super) struct Stock {
    pub pool: &'static str,
    template: &'static str,
    size: usize,
}

impl Stock {
    /// Declares a pool that this server has not had before, as soon as its template is there.
    pub(super) fn declare(
        client: &mut Client,
        pool: &'static str,
        template: &'static str,
        size: usize,
    ) -> Result<Self> {
        let stock = Self { pool, template, size };
        let deadline = Instant::now() + READY_WITHIN;
        while let Err(error) = stock.set(client, size) {
            ensure!(Instant::now() < deadline, "there is no pool {pool}: {error:#}");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(stock)
    }

    fn set(&self, client: &mut Client, size: usize) -> Result<()> {
        let body = json!({ "template": self.template, "size": size });
        client.json("PUT", &format!("/atoll/v1/pools/{}", self.pool), Some(&body)).map(drop)
    }

    /// Waits until it is full.
    pub(super) fn wait(&self, client: &mut Client) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let pool = self.status(client)?;
            if pool["ready"].as_u64().is_some_and(|ready| ready >= self.size as u64) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the pool does not fill up: {pool}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Empties it, after so many claims and not one more.
    pub(super) fn end(&self, client: &mut Client, claims: usize) -> Result<()> {
        let pool = self.status(client)?;
        let as_expected = pool["hits"] == claims && pool["misses"] == 0;
        ensure!(as_expected, "{claims} sandboxes were to come from stock: {pool}");
        self.set(client, 0)
    }

    fn status(&self, client: &mut Client) -> Result<Value> {
        let pools = client.json("GET", "/atoll/v1/pools", None)?;
        let pools = pools["pools"].as_array().context("no list of pools")?;
        let pool = pools.iter().find(|pool| pool["name"] == self.pool);
        pool.cloned().context("the pool is gone")
    }
}

/// What the server has counted of claims so far.
pub(super) struct Claims {
    seconds: f64,
    count: f64,
}

impl Claims {
    pub(super) fn read(client: &mut Client) -> Result<Self> {
        let answer = client.send("GET", "/metrics", "", b"")?;
        let text = String::from_utf8(answer.body).context("metrics that are no text")?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let value = |what: &str| -> Result<f64> {
            let name = format!("atoll_claim_seconds_{what} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&name));
            let value = value.with_context(|| format!("no {name}in the metrics"))?;
            value.parse().with_context(|| format!("{name}is no number"))
        };
        Ok(Self { seconds: value("sum")?, count: value("count")? })
    }

    /// How long the only claim since then took.
    pub(super) fn one_since(&self, before: &Self) -> Result<Duration> {
        let claims = self.count - before.count;
        ensure!((claims - 1.0).abs() < 0.5, "{claims} claims where there was to be one");
        Duration::try_from_secs_f64(self.seconds - before.seconds).context("a claim before time")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Claims;

    #[test]
    fn one_claim_is_told_from_the_sums() {
        let read = |sum: &str, count: u32| {
            let text =
                format!("x 1\natoll_claim_seconds_sum {sum}\natoll_claim_seconds_count {count}\n");
            Claims::parse(&text).unwrap()
        };
        let (before, after) = (read("1.5", 3), read("1.75", 4));
        assert_eq!(after.one_since(&before).unwrap(), Duration::from_millis(250));
        assert!(after.one_since(&after).is_err(), "none since then");
        assert!(Claims::parse("").is_err());
    }
}
