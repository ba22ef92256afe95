//! Time, so that tests can hold it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use atoll_core::Timestamp;

/// Tells the time and wakes at a time.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Returns once `now() >= at`, also when the clock was set forward meanwhile.
    async fn sleep_until(&self, at: Timestamp);
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

/// A sleep is cut into pieces, so that a clock set forward is noticed within this time.
const STEP: Duration = Duration::from_secs(1);

#[async_trait]
impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    async fn sleep_until(&self, at: Timestamp) {
        loop {
            let left = self.now().until(at);
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(STEP)).await;
        }
    }
}
