//! Everything slow runs as a job; the actor itself never waits.

use std::collections::HashMap;
use std::future::Future;

use atoll_core::{Observed, SandboxId, SnapshotId};
use tokio::task::{Id, JoinSet};

use crate::seam::{RuntimeError, StoreError};

/// What became of a job.
#[derive(Clone, Debug)]
pub(super) enum Done {
    Worked(SandboxId, Outcome),
    Kept(SandboxId, SnapshotId, Result<(), RuntimeError>),
    Seen(SandboxId, u64, Result<Observed, RuntimeError>),
    Looked(u64, Result<Vec<(SandboxId, Observed)>, RuntimeError>),
    OrphanRemoved(SandboxId),
    SnapshotRemoved(SnapshotId),
    Committed(Result<(), StoreError>),
}

/// What became of an action.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Told(Result<Observed, RuntimeError>),
    Cancelled,
}

#[derive(Default)]
pub(super) struct Jobs {
    running: JoinSet<Done>,
    /// What to report for a job that panics.
    fallbacks: HashMap<Id, Done>,
}

impl Jobs {
    pub(super) fn spawn(
        &mut self,
        on_panic: Done,
        job: impl Future<Output = Done> + Send + 'static,
    ) {
        let id = self.running.spawn(job).id();
        self.fallbacks.insert(id, on_panic);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// The next job that ends; must not be called when there is none.
    pub(super) async fn next(&mut self) -> Done {
        match self.running.join_next_with_id().await {
            Some(Ok((id, done))) => {
                self.fallbacks.remove(&id);
                done
            }
            Some(Err(panicked)) => {
                tracing::error!(error = %panicked, "a job of the engine panicked");
                self.fallbacks.remove(&panicked.id()).expect("every job has a fallback")
            }
            None => std::future::pending().await,
        }
    }
}

/// A fault of ours, as a failure that may pass.
pub(super) fn panicked() -> RuntimeError {
    RuntimeError::transient(
        "INTERNAL",
        "an internal fault interrupted the work on this sandbox",
        "look at the server's log and report it",
    )
}
