//! Time that stands still until a test moves it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use atoll_core::Timestamp;
use atoll_engine::Clock;
use tokio::sync::watch;

/// A clock that only moves when told to, forwards or backwards.
pub struct ManualClock(watch::Sender<Timestamp>);

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn new(now: Timestamp) -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(now)))
    }

    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        self.0.send_modify(|now| *now = now.saturating_add(by));
    }

    /// Sets it, also back.
    pub fn set(&self, now: Timestamp) {
        self.0.send_replace(now);
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    async fn sleep_until(&self, at: Timestamp) {
        // The sender is part of this clock, so the channel can't close.
        drop(self.0.subscribe().wait_for(|now| *now >= at).await);
    }
}
