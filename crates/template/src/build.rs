//! One build: steps done in a sandbox, and what they left kept as snapshots.
//!
//! # Flow
//! The longest chain of steps that was done before is taken from the cache. The others run one by
//! one in a builder. At a boundary (enough work was done, or the last step is next, or there is
//! none) the builder's files become a snapshot and the builder goes; the next step starts one on
//! that snapshot. So a snapshot holds only what changed since the one before, and a step finds the
//! same things whether the steps before it were done just now or long ago: files, no processes.

use std::sync::Arc;

use atoll_core::{Error, RegistryAuth, Resources, TenantId};
use tokio::time::Instant;

mod chain;
mod copy;
mod expand;
mod finish;
mod ground;
mod layer;
mod steps;
mod tidy;

use crate::agent::Agent;
use crate::log::{Level, Log, LogEntry};
use crate::recipe::Recipe;
use crate::record::{Build, Made};
use crate::service::Shop;

pub(crate) use finish::work_off;

/// Label on a builder, so that lists can leave it out; its value is the build's id.
pub const BUILDER_LABEL: &str = "atoll-template-build";
/// Names of builders' snapshots begin with this.
pub const SNAPSHOT_PREFIX: &str = "atoll-template-";

const BASE: &str = "base";
const FINALIZE: &str = "finalize";

/// Why a build goes no further, and where.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {message}")]
pub(crate) struct Failure {
    step: String,
    message: String,
}

/// A sandbox in which steps are done.
struct Builder {
    id: atoll_core::SandboxId,
    agent: Agent,
    /// The program that runs commands, once it is known.
    shell: Option<&'static str>,
}

/// A build at work.
struct Work {
    shop: Arc<Shop>,
    tenant: TenantId,
    /// To whom builders and snapshots belong.
    owner: TenantId,
    build: Arc<Build>,
    log: Arc<Log>,
    /// What the steps so far led to.
    made: Made,
    /// What the registry of the first image asks for.
    auth: Option<RegistryAuth>,
    /// Files may differ from those in `made`.
    changed: bool,
    /// Since when steps have been done that no snapshot holds.
    since: Instant,
    layers: usize,
    ends_at: Instant,
    step: String,
    builder: Option<Builder>,
}

impl Work {
    fn new(shop: Arc<Shop>, tenant: TenantId, build: Arc<Build>, log: Arc<Log>) -> Self {
        let owner = shop.owner(&tenant);
        let now = Instant::now();
        let ends_at = now + shop.config.build_time_max;
        Self {
            shop,
            tenant,
            owner,
            build,
            log,
            made: Made::of_image(BASE),
            auth: None,
            changed: false,
            since: now,
            layers: 0,
            ends_at,
            step: BASE.to_owned(),
            builder: None,
        }
    }

    /// Does everything that has not been done before.
    async fn carry_out(&mut self, recipe: &Recipe) -> Result<Made, Failure> {
        let ground = self.prepare(&recipe.from).await?;
        let chain = chain::Chain::new(&self.tenant, &ground, recipe);
        let last = recipe.steps.len();
        let whole = chain.is_whole_reusable() && self.recall(chain.whole()).await;
        let done = if whole { last } else { self.resume(&chain).await };
        for number in 1..=done {
            self.note(number.to_string(), Level::Info, &label(recipe, number, true));
        }
        if whole {
            return Ok(self.made.clone());
        }
        for number in done + 1..=last {
            self.step = number.to_string();
            self.note(self.step.clone(), Level::Info, &label(recipe, number, false));
            self.act(&recipe.steps[number - 1]).await?;
            if number + 1 >= last || self.since.elapsed() >= self.shop.config.layer_worth {
                self.settle(chain.key(number), number == last).await?;
            }
        }
        FINALIZE.clone_into(&mut self.step);
        if self.changed {
            self.settle(chain.key(last), true).await?;
        }
        self.finish(&chain, recipe).await
    }

    fn note(&self, step: impl Into<Option<String>>, level: Level, message: &str) {
        self.log.note(self.entry(step.into(), level, message));
    }

    fn entry(&self, step: Option<String>, level: Level, message: &str) -> LogEntry {
        let at_micros = (self.shop.now)().as_micros();
        LogEntry { at_micros, level, message: message.to_owned(), step }
    }

    fn failure(&self, message: impl Into<String>) -> Failure {
        Failure { step: self.step.clone(), message: message.into() }
    }

    /// A failure of something that a step needed.
    fn because(&self, doing: &str) -> impl FnOnce(Error) -> Failure + use<> {
        let (step, doing) = (self.step.clone(), doing.to_owned());
        move |error| Failure { step, message: format!("{doing}: {error}") }
    }

    fn resources(&self) -> Resources {
        resources(&self.build)
    }
}

/// What sandboxes of a build may use.
pub(crate) fn resources(build: &Build) -> Resources {
    Resources {
        cpu_millis: build.cpu_count.map(|count| u64::from(count) * 1000),
        memory_bytes: build.memory_mib.map(|mib| u64::from(mib) << 20),
        pids: None,
    }
}

fn label(recipe: &Recipe, number: usize, cached: bool) -> String {
    let (step, last) = (&recipe.steps[number - 1], recipe.steps.len());
    let cached = if cached { "CACHED " } else { "" };
    format!("{cached}[builder {number}/{last}] {}", step.text())
}
