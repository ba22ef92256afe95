//! Whether anybody still waits for a sandbox that is being made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Held by whoever waits; dropping it says that nobody does.
#[derive(Default)]
pub(crate) struct Interest(Arc<AtomicBool>);

/// Held by the work.
pub(crate) struct Wanted(Arc<AtomicBool>);

impl Interest {
    /// The other end.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted(Arc::clone(&self.0))
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Wanted {
    /// Nobody waits any more: what has not begun should not begin.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
