//! Idle connections to agents, so that a command costs no connection of its own.
//!
//! A connection in here was opened for somebody; whoever takes it must have been allowed anew.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use atoll_core::SandboxId;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::link::Link;

/// Idle connections kept per sandbox.
const IDLE_PER_SANDBOX_MAX: usize = 4;
/// Sandboxes for which any are kept.
const SANDBOXES_MAX: usize = 4096;
/// A connection idle for longer is closed, so that quiet sandboxes cost no descriptors.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);
/// How long an answered connection may take to be ready for the next request.
const REST_TIME_MAX: Duration = Duration::from_secs(1);

/// Shared by all requests.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<HashMap<SandboxId, Vec<Idle>>>>);

struct Idle {
    link: Link,
    since: Instant,
}

impl Idle {
    fn is_usable(&self) -> bool {
        !self.link.is_closed() && self.since.elapsed() < IDLE_TIME_MAX
    }
}

impl Pool {
    /// An idle connection, the one used last.
    pub(crate) fn take(&self, id: &SandboxId) -> Option<Link> {
        let mut sandboxes = self.lock();
        let idle = sandboxes.get_mut(id)?;
        idle.retain(Idle::is_usable);
        idle.pop().map(|idle| idle.link)
    }

    /// Keeps `link` once it has come to rest.
    fn put(self, id: SandboxId, mut link: Link) {
        tokio::spawn(async move {
            let rested = tokio::time::timeout(REST_TIME_MAX, link.rested()).await;
            if matches!(rested, Ok(true)) && self.store(&id, link) {
                self.watch(&id).await;
            }
        });
    }

    /// True when the caller shall watch over this sandbox's idle connections.
    fn store(&self, id: &SandboxId, link: Link) -> bool {
        let mut sandboxes = self.lock();
        let is_new = !sandboxes.contains_key(id);
        if is_new && sandboxes.len() >= SANDBOXES_MAX {
            return false;
        }
        let idle = sandboxes.entry(id.clone()).or_default();
        if idle.len() < IDLE_PER_SANDBOX_MAX {
            idle.push(Idle { link, since: Instant::now() });
        }
        is_new
    }

    /// Closes connections that have been idle for long, and forgets the sandbox when none is left.
    async fn watch(&self, id: &SandboxId) {
        loop {
            tokio::time::sleep(IDLE_TIME_MAX).await;
            let mut sandboxes = self.lock();
            let Some(idle) = sandboxes.get_mut(id) else { return };
            idle.retain(Idle::is_usable);
            if idle.is_empty() {
                sandboxes.remove(id);
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Vec<Idle>>> {
        // Nothing panics while holding it; a map is whole in any case.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of an answer; its connection goes back to the pool when the body ends.
pub(crate) struct Returning {
    body: Incoming,
    back: Option<(Pool, SandboxId, Link)>,
}

impl Returning {
    /// Keeps `link` alive for as long as `body` lasts, then puts it into `pool`.
    pub(crate) fn new(body: Incoming, pool: Pool, id: SandboxId, link: Link) -> Self {
        let mut body = Self { body, back: Some((pool, id, link)) };
        body.check_in_at_end();
        body
    }

    fn check_in_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some((pool, id, link)) = self.back.take()
        {
            pool.put(id, link);
        }
    }
}

impl Body for Returning {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(None) => {
                if let Some((pool, id, link)) = self.back.take() {
                    pool.put(id, link);
                }
            }
            Poll::Ready(Some(Ok(_))) => self.check_in_at_end(),
            Poll::Ready(Some(Err(_))) => self.back = None,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
