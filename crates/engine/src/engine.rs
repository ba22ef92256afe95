//! The handle.

use std::sync::Arc;

use atoll_core::{Error, Result, SandboxId};
use tokio::sync::{mpsc, oneshot};

use crate::actor::{Actor, Reply, Request};
use crate::config::{EngineConfig, Random};
use crate::counters::{Counters, EngineStats};
use crate::seam::{Clock, Runtime, Store};
use crate::view::View;

mod control;
mod pools;
mod reach;
mod sampler;

pub use pools::{POOL_NAME_BYTES_MAX, POOL_SIZE_MAX, is_pool_name};
use sampler::Sampler;

/// Requests that may wait for the actor before callers wait to send theirs.
const REQUESTS_WAITING_MAX: usize = 1024;

/// Runs sandboxes on one machine. Clones are handles to the same engine; it stops when the last
/// one is dropped or after [`Engine::shutdown`], and leaves the sandboxes running.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    requests: mpsc::Sender<Request>,
    view: Arc<View>,
    counters: Arc<Counters>,
    runtime: Arc<dyn Runtime>,
    clock: Arc<dyn Clock>,
    random: Random,
    /// Told the sandboxes whose callers went away before they had them.
    abandoned: mpsc::UnboundedSender<SandboxId>,
    sampler: Sampler,
}

fn stopped() -> Error {
    Error::unavailable("the server is shutting down; try again")
}

impl Engine {
    /// Reads the records, compares them with what is really there, and goes on where a former
    /// engine stopped or crashed.
    ///
    /// # Errors
    /// `Unavailable` when the records can't be read or the runtime can't tell what it has.
    pub async fn start(
        config: EngineConfig,
        runtime: Arc<dyn Runtime>,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let view = Arc::new(View::default());
        let counters = Arc::new(Counters::default());
        let random = config.random.clone();
        let (requests, waiting) = mpsc::channel(REQUESTS_WAITING_MAX);
        let (abandoned, left) = mpsc::unbounded_channel();
        let mut actor = Actor::new(
            config,
            runtime.clone(),
            store,
            clock.clone(),
            view.clone(),
            counters.clone(),
            left,
        );
        actor.recover().await?;
        tokio::spawn(actor.run(waiting));
        let sampler = Sampler::start(runtime.clone(), view.clone(), clock.clone());
        let inner = Inner { requests, view, counters, runtime, clock, random, abandoned, sampler };
        Ok(Self(Arc::new(inner)))
    }

    /// Lets go of the pools' stock, which belongs to nobody, and returns once nothing is being
    /// removed: a server that stops for good leaves nothing half-done and nothing of its own. May take as long as the slowest removal: callers bound it.
    pub async fn removals_done(&self) {
        let (reply, done) = oneshot::channel();
        if self.0.requests.send(Request::Removals(reply)).await.is_ok() {
            // An error means that the actor is gone, and with it what was waited for.
            let _gone = done.await;
        }
    }

    /// Stops after the records are written. Sandboxes go on running; a new engine over the same
    /// store finds them.
    pub async fn shutdown(&self) {
        self.0.sampler.stop();
        let (reply, stopped) = oneshot::channel();
        if self.0.requests.send(Request::Shutdown(reply)).await.is_ok() {
            // An error means that the actor is gone, which is what was asked for.
            let _gone = stopped.await;
        }
    }

    /// What it has done and is doing.
    pub fn stats(&self) -> EngineStats {
        self.0.counters.read(self.0.view.len())
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.0.requests.send(request(reply)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}
