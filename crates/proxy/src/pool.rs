//! Idle connections to agents, so that a command costs no connection of its own.
//!
//! A connection in here was opened for somebody; whoever takes it must have been allowed anew.
//! To ask `Control` that, one needs the sandbox's tenant, which is remembered here too.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use atoll_core::{SandboxId, TenantId};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::link::Link;

/// Idle connections kept per sandbox.
const IDLE_PER_SANDBOX_MAX: usize = 4;
/// Sandboxes for which anything is kept.
const SANDBOXES_MAX: usize = 4096;
/// A connection idle for longer is closed, so that quiet sandboxes cost no descriptors.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);
/// How long an answered connection may take to be ready for the next request.
const REST_TIME_MAX: Duration = Duration::from_secs(1);

/// Shared by all requests.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<HashMap<SandboxId, Known>>>);

struct Known {
    tenant: TenantId,
    idle: Vec<(Link, Instant)>,
    /// A task watches over `idle`.
    watched: bool,
}

impl Pool {
    /// Remembers whose a sandbox is.
    pub(crate) fn learn(&self, id: &SandboxId, tenant: &TenantId) {
        let mut known = self.lock();
        if known.contains_key(id) {
            return;
        }
        if known.len() >= SANDBOXES_MAX {
            known.retain(|_, known| known.is_fresh());
        }
        if known.len() < SANDBOXES_MAX {
            known.insert(
                id.clone(),
                Known { tenant: tenant.clone(), idle: Vec::new(), watched: false },
            );
        }
    }

    /// Whose a sandbox is, if it was learnt.
    pub(crate) fn tenant_of(&self, id: &SandboxId) -> Option<TenantId> {
        self.lock().get(id).map(|known| known.tenant.clone())
    }

    /// There is an idle connection to this sandbox's agent.
    pub(crate) fn has_idle(&self, id: &SandboxId) -> bool {
        self.lock().get(id).is_some_and(|known| !known.idle.is_empty())
    }

    /// An idle connection, the one used last.
    pub(crate) fn take(&self, id: &SandboxId) -> Option<Link> {
        let mut known = self.lock();
        let idle = &mut known.get_mut(id)?.idle;
        idle.retain(|(link, since)| !link.is_closed() && since.elapsed() < IDLE_TIME_MAX);
        idle.pop().map(|(link, _)| link)
    }

    /// Forgets a sandbox and closes its idle connections.
    pub(crate) fn forget(&self, id: &SandboxId) {
        self.lock().remove(id);
    }

    /// Keeps `link` once it has come to rest.
    fn put(self, id: SandboxId, mut link: Link) {
        tokio::spawn(async move {
            let rested = tokio::time::timeout(REST_TIME_MAX, link.rested()).await;
            if !matches!(rested, Ok(true)) {
                return;
            }
            if self.store(&id, link) {
                self.watch(&id).await;
            }
        });
    }

    /// True when the caller shall watch over this sandbox's idle connections.
    fn store(&self, id: &SandboxId, link: Link) -> bool {
        let mut known = self.lock();
        let Some(known) = known.get_mut(id) else { return false };
        if known.idle.len() >= IDLE_PER_SANDBOX_MAX {
            return false;
        }
        known.idle.push((link, Instant::now()));
        !std::mem::replace(&mut known.watched, true)
    }

    /// Closes connections that have been idle for long, until none is left.
    async fn watch(&self, id: &SandboxId) {
        loop {
            tokio::time::sleep(IDLE_TIME_MAX).await;
            let mut known = self.lock();
            let Some(known) = known.get_mut(id) else { return };
            known.idle.retain(|(_, since)| since.elapsed() < IDLE_TIME_MAX);
            if known.idle.is_empty() {
                known.watched = false;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Known>> {
        // Nothing panics while holding it; a map is whole in any case.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_fresh(&self) -> bool {
        self.idle.iter().any(|(link, _)| !link.is_closed())
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
