//! Whether somebody still waits for a sandbox that is being made.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_core::SandboxId;
use tokio::sync::mpsc::UnboundedSender;

/// What became of a caller's request, shared between the caller and the actor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seat(Arc<Mutex<Fate>>);

#[derive(Debug, Default)]
enum Fate {
    /// Nothing has been chosen for it yet.
    #[default]
    Waiting,
    /// This sandbox is, or is being, made for it.
    Given(SandboxId),
    /// The caller went away.
    Left,
}

impl Seat {
    fn fate(&self) -> MutexGuard<'_, Fate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller went away before anything was chosen for it.
    pub(crate) fn is_left(&self) -> bool {
        matches!(*self.fate(), Fate::Left)
    }

    /// Ties `id` to the caller; says no when the caller went away.
    pub(crate) fn give(&self, id: &SandboxId) -> bool {
        let mut fate = self.fate();
        if matches!(*fate, Fate::Left) {
            return false;
        }
        *fate = Fate::Given(id.clone());
        true
    }
}

/// Held by a caller until it has what it asked for; dropped before that, the sandbox is removed
/// again.
pub(crate) struct Interest {
    seat: Seat,
    /// Every id goes through it once at the most, so it never holds more than there are sandboxes.
    abandoned: Option<UnboundedSender<SandboxId>>,
}

impl Interest {
    pub(crate) fn new(abandoned: UnboundedSender<SandboxId>) -> (Self, Seat) {
        let seat = Seat::default();
        (Self { seat: seat.clone(), abandoned: Some(abandoned) }, seat)
    }

    /// The caller has its sandbox.
    pub(crate) fn satisfied(mut self) {
        self.abandoned = None;
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let Some(abandoned) = self.abandoned.take() else { return };
        if let Fate::Given(id) = std::mem::replace(&mut *self.seat.fate(), Fate::Left) {
            // Without an actor there is nobody left to tell.
            let _stopped = abandoned.send(id);
        }
    }
}
