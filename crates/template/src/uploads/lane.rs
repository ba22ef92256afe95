//! How much one tenant may upload at the same time.

use std::sync::{Arc, Mutex, PoisonError};

use atoll_core::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Uploads of one tenant that are received at the same time.
pub(super) const AT_ONCE: usize = 4;
/// Uploads of one tenant that are received or wait: some clients send every file of a template
/// at once.
pub(super) const PENDING_MAX: usize = 64;

/// The uploads of one tenant that are on their way.
#[derive(Debug)]
pub(super) struct Lane {
    pending: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    /// Bytes that they announced.
    bytes: Mutex<u64>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            pending: Arc::new(Semaphore::new(PENDING_MAX)),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            bytes: Mutex::new(0),
        }
    }
}

/// The right to be received now; given back when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _pending: OwnedSemaphorePermit,
    _turn: OwnedSemaphorePermit,
}

/// Announced bytes; given back when dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    lane: Arc<Lane>,
    bytes: u64,
}

impl Lane {
    /// Waits for a turn; too many that wait are refused.
    pub(super) async fn turn(&self) -> Result<Turn> {
        let pending = Arc::clone(&self.pending).try_acquire_owned().map_err(|_| {
            let message = format!("{PENDING_MAX} uploads are on their way; wait for some to end");
            Error::new(ErrorKind::Exhausted, message).with_reason("TOO_MANY_UPLOADS")
        })?;
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(|_| Error::internal("uploads are closed"))?;
        Ok(Turn { _pending: pending, _turn: turn })
    }

    /// Reserves bytes, at most `bytes_max` with all other reservations.
    pub(super) fn reserve(self: &Arc<Self>, bytes: u64, bytes_max: u64) -> Result<Reservation> {
        let mut reserved = self.locked();
        let sum = reserved.saturating_add(bytes);
        if sum > bytes_max {
            let message = format!(
                "uploads on their way have {} of {bytes_max} bytes, so that {bytes} more don't \
                 fit; wait for them to end",
                *reserved
            );
            return Err(Error::new(ErrorKind::Exhausted, message).with_reason("UPLOADS_FULL"));
        }
        *reserved = sum;
        Ok(Reservation { lane: Arc::clone(self), bytes })
    }

    /// All bytes that are reserved.
    pub(super) fn reserved(&self) -> u64 {
        *self.locked()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, u64> {
        // A sum is changed in one step, so that a panic elsewhere left it right.
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = self.lane.locked();
        *reserved = reserved.saturating_sub(self.bytes);
    }
}
