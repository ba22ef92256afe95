//! What requests must not do at the same time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_core::TenantId;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

/// Searches for the sandbox of a signed link at once; each looks at many sandboxes.
const SEARCHES_MAX: usize = 2;

/// Tenants and their keys.
pub(crate) type Keys = HashSet<(TenantId, String)>;

/// Shared by all requests. Cheap to clone.
#[derive(Clone, Default)]
pub struct Turns(Arc<Inner>);

struct Inner {
    keys: Mutex<Keys>,
    deadlines: AsyncMutex<()>,
    searches: Semaphore,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            keys: Mutex::default(),
            deadlines: AsyncMutex::default(),
            searches: Semaphore::new(SEARCHES_MAX),
        }
    }
}

impl Turns {
    /// Keys of creations that are under way.
    pub(crate) fn keys(&self) -> MutexGuard<'_, Keys> {
        self.0.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by whoever gives a deadline to a sandbox that has none, so that of several the
    /// latest stands.
    pub(crate) fn deadlines(&self) -> &AsyncMutex<()> {
        &self.0.deadlines
    }

    /// Held during a search.
    pub(crate) fn searches(&self) -> &Semaphore {
        &self.0.searches
    }
}
