use super::{event::Event, zmtp::MESSAGE_BYTES_MAX};
use std::collections::VecDeque;
use tokio::sync::mpsc;

/// Events that wait for a slow listener before the kernel is no longer listened to.
const PENDING_MAX: usize = 16;
/// Their bytes, beyond which it is the same.
const PENDING_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
/// Events under way to the listener.
pub(super) const CHANNEL: usize = 2;

/// Where an execution's events go.
#[derive(Debug)]
pub(super) struct Sink {
    listener: Option<mpsc::Sender<Event>>,
    /// With the bytes that each takes.
    pending: VecDeque<(Event, usize)>,
    pending_bytes: usize,
}

impl Sink {
    pub(super) fn new(listener: mpsc::Sender<Event>) -> Self {
        Self { listener: Some(listener), pending: VecDeque::new(), pending_bytes: 0 }
    }

    /// For an execution of the agent's own, which nobody listens to.
    pub(super) fn silent() -> Self {
        Self { listener: None, pending: VecDeque::new(), pending_bytes: 0 }
    }

    pub(super) fn is_silent(&self) -> bool {
        self.listener.is_none()
    }

    /// Takes an event that came in a message of so many bytes.
    pub(super) fn push(&mut self, event: Event, bytes: usize) {
        if self.listener.as_ref().is_some_and(|listener| !listener.is_closed()) {
            self.pending.push_back((event, bytes));
            self.pending_bytes += bytes;
        }
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.pending.len() < PENDING_MAX && self.pending_bytes < PENDING_BYTES_MAX
    }

    /// Hands the oldest event over, or waits until nobody listens any more; answers whether
    /// somebody does. Safe to cancel.
    pub(super) async fn step(&mut self) -> bool {
        let Some(listener) = &self.listener else { return std::future::pending().await };
        if self.pending.is_empty() {
            listener.closed().await;
            return false;
        }
        match listener.reserve().await {
            Ok(permit) => {
                if let Some((event, bytes)) = self.pending.pop_front() {
                    self.pending_bytes -= bytes;
                    permit.send(event);
                }
                true
            }
            Err(_) => {
                self.pending.clear();
                self.pending_bytes = 0;
                false
            }
        }
    }

    /// Hands over everything and one event more.
    pub(super) async fn finish(mut self, last: Option<Event>) {
        if let Some(last) = last {
            self.push(last, 0);
        }
        while self.has_pending() {
            self.step().await;
        }
    }
}
