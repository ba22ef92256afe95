//! Pulls under way, each shared by all who want the same thing.

use super::catalog::Caller;
use crate::{Error, Image, Progress};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// The image and on whose behalf it is pulled; callers with other credentials do not share.
pub(super) type Key = (String, Caller);
type Outcome = Result<Arc<Image>, Error>;
type Table = Arc<Mutex<HashMap<Key, Arc<watch::Sender<State>>>>>;

#[derive(Debug, Clone, Default)]
struct State {
    progress: Progress,
    outcome: Option<Outcome>,
}

/// Tells everyone who waits for a pull how far it is.
#[derive(Clone)]
pub(super) struct Report {
    state: Arc<watch::Sender<State>>,
}

impl Report {
    pub(super) fn update(&self, change: impl FnOnce(&mut Progress)) {
        self.state.send_modify(|state| change(&mut state.progress));
    }
}

/// All pulls under way.
#[derive(Default)]
pub(super) struct Flights {
    table: Table,
}

/// Takes a pull off the table however it ends, so that nobody waits for one that panicked.
struct Landing {
    table: Table,
    key: Key,
}

impl Drop for Landing {
    fn drop(&mut self) {
        lock(&self.table).remove(&self.key);
    }
}

impl Flights {
    /// Waits for the pull of `key`, which is started unless it is under way.
    pub(super) async fn join<F>(
        &self,
        key: Key,
        run: impl FnOnce(Report) -> F,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Outcome
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let image = key.0.clone();
        let mut state = self.subscribe(key, run);
        loop {
            let now = state.borrow_and_update().clone();
            progress(now.progress);
            if let Some(outcome) = now.outcome {
                return outcome;
            }
            if state.changed().await.is_err() {
                return Err(Error::Interrupted { image });
            }
        }
    }

    fn subscribe<F>(&self, key: Key, run: impl FnOnce(Report) -> F) -> watch::Receiver<State>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut table = lock(&self.table);
        if let Some(sender) = table.get(&key) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(State::default());
        let sender = Arc::new(sender);
        table.insert(key.clone(), Arc::clone(&sender));
        drop(table);
        let pull = run(Report { state: Arc::clone(&sender) });
        let landing = Landing { table: Arc::clone(&self.table), key };
        tokio::spawn(async move {
            let outcome = pull.await;
            drop(landing);
            sender.send_modify(|state| state.outcome = Some(outcome));
        });
        receiver
    }
}

fn lock(table: &Table) -> MutexGuard<'_, HashMap<Key, Arc<watch::Sender<State>>>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
