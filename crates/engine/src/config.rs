//! Limits of one engine.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How much an engine does and keeps.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Creations and snapshots at once; as many pauses, resumes and removals go beside them.
    pub actions_at_once: usize,
    /// Sandboxes made for warm pools at once, beside those that somebody waits for.
    pub stock_at_once: usize,
    /// Sandboxes one tenant may have.
    pub sandboxes_per_tenant_max: usize,
    /// Snapshots one tenant may have.
    pub snapshots_per_tenant_max: usize,
    /// How often everything is looked at, in case a hint of the runtime was lost.
    pub look_every: Duration,
    /// Where names and tokens come from.
    pub random: Random,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            actions_at_once: 32,
            stock_at_once: 4,
            sandboxes_per_tenant_max: 1000,
            snapshots_per_tenant_max: 200,
            look_every: Duration::from_secs(10),
            random: Random::system(),
        }
    }
}

/// A source of random bytes, so that a test can repeat a run.
#[derive(Clone)]
pub struct Random(Arc<Fill>);

type Fill = dyn Fn(&mut [u8]) + Send + Sync;

impl Random {
    /// The operating system's.
    pub fn system() -> Self {
        Self::new(|bytes| {
            getrandom::fill(bytes).expect("Linux has had a random source since 3.17");
        })
    }

    /// Any function that fills a slice.
    pub fn new(fill: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(fill))
    }

    pub(crate) fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.0)(&mut bytes);
        bytes
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}
