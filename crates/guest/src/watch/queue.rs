use super::{Event, Lost};
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// Events that wait for one watcher.
const EVENTS_MAX: usize = 8192;

/// A watcher's events. When nobody takes them and it is full, further ones are dropped and whoever
/// reads next is told once, after what was kept.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    pushed: Notify,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    is_lost: bool,
    is_closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, event: Event) {
        let mut state = self.lock();
        // What comes behind a gap would look as if there were none.
        if state.events.len() >= EVENTS_MAX || state.is_lost {
            state.is_lost = true;
        } else {
            state.events.push_back(event);
        }
        drop(state);
        self.pushed.notify_one();
    }

    pub(super) fn lose(&self) {
        self.lock().is_lost = true;
        self.pushed.notify_one();
    }

    pub(super) fn try_next(&self) -> Option<Result<Event, Lost>> {
        let mut state = self.lock();
        match state.events.pop_front() {
            Some(event) => Some(Ok(event)),
            None => std::mem::take(&mut state.is_lost).then_some(Err(Lost)),
        }
    }

    pub(super) async fn next(&self) -> Result<Event, Lost> {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            self.pushed.notified().await;
        }
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Change;

    #[test]
    fn a_full_queue_says_so_after_what_it_kept() {
        let queue = Queue::default();
        let event = Event { name: "x".into(), change: Change::Write, entry: None };
        for _ in 0..EVENTS_MAX + 5 {
            queue.push(event.clone());
        }
        for _ in 0..EVENTS_MAX {
            assert_eq!(queue.try_next(), Some(Ok(event.clone())));
        }
        assert_eq!(queue.try_next(), Some(Err(Lost)));
        assert_eq!(queue.try_next(), None);
        queue.push(event.clone());
        assert_eq!(queue.try_next(), Some(Ok(event)), "it goes on after that");
    }
}
