//! Warm pools, looked at from outside: what the server counts, and what waits on disk.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::world::{World, client_of};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The value of one of the server's metrics for a pool; none when it isn't told.
pub fn metric(address: SocketAddr, pool: &str, name: &str) -> Result<Option<f64>> {
    let answer = client_of(address).send("GET", "/metrics", "", b"")?;
    let text = String::from_utf8(answer.body).context("metrics that are no text")?;
    let wanted = format!("{name}{{pool=\"{pool}\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&wanted));
    value.map(|value| value.parse().context("a metric that is no number")).transpose()
}

/// How often a pool's stock was used as it is, used after a change, and missing.
pub fn counts(address: SocketAddr, pool: &str) -> Result<[f64; 3]> {
    let count = |what: &str| {
        let name = format!("atoll_pool_{what}_total");
        metric(address, pool, &name)?.with_context(|| format!("there is no {name} of {pool}"))
    };
    Ok([count("hits")?, count("replaced")?, count("misses")?])
}

/// Waits until a pool has this much stock ready.
pub fn wait_stock(address: SocketAddr, pool: &str, count: usize) -> Result<()> {
    wait_for(&format!("{count} ready in pool {pool}"), || {
        Ok(metric(address, pool, "atoll_pool_ready")?.is_some_and(|ready| ready >= count as f64))
    })
}

/// Waits until something has become true.
pub fn wait_for(what: &str, mut is_true: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_true()? {
        ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Ids of all sandboxes on disk: those in stock are shown to nobody.
pub fn on_disk(world: &World) -> Result<Vec<String>> {
    let folder = std::fs::read_dir(world.data().join("sandboxes"))?;
    let names = folder.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}
