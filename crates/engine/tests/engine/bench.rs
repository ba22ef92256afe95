//! An engine over a simulated machine, a disk that fails on demand, and a clock to hold.

use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Claim, Control, Create, PoolStatus, Pools};
use atoll_core::{Aging, Keep, Observed, Phase, Sandbox, SandboxId, TenantId};
use atoll_engine::{Engine, EngineConfig};
use atoll_runtime_sim::SimRuntime;
use atoll_testkit::{FaultyStore, ManualClock, eventually, sample};

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3600);

pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) machine: Arc<SimRuntime>,
    pub(crate) disk: Arc<FaultyStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) tenant: TenantId,
    config: EngineConfig,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(EngineConfig::default()).await
    }

    pub(crate) async fn with(config: EngineConfig) -> Self {
        let (machine, disk) = (SimRuntime::new(), FaultyStore::new());
        let clock = ManualClock::new(sample::NOW);
        let started = Engine::start(config.clone(), machine.clone(), disk.clone(), clock.clone());
        let engine = started.await.unwrap();
        Self { engine, machine, disk, clock, tenant: sample::tenant("alpha"), config }
    }

    /// Another engine over the same machine and disk, after an orderly end of the first.
    pub(crate) async fn restart(&mut self) {
        self.engine.shutdown().await;
        let (machine, disk) = (self.machine.clone(), self.disk.clone());
        let started = Engine::start(self.config.clone(), machine, disk, self.clock.clone());
        self.engine = started.await.unwrap();
    }

    pub(crate) async fn create(&self) -> Arc<Sandbox> {
        self.create_from(sample::create()).await
    }

    pub(crate) async fn create_from(&self, create: Create) -> Arc<Sandbox> {
        self.engine.create(&self.tenant, create).await.unwrap()
    }

    pub(crate) async fn running(&self) -> SandboxId {
        let id = self.create().await.id.clone();
        assert_eq!(self.at_rest(&id).await.life.phase(), Phase::Running);
        id
    }

    pub(crate) async fn at_rest(&self, id: &SandboxId) -> Arc<Sandbox> {
        self.engine.wait(&self.tenant, id, PATIENCE).await.unwrap()
    }

    pub(crate) async fn paused(&self) -> SandboxId {
        let id = self.running().await;
        self.engine.pause(&self.tenant, &id, Keep::Memory, Aging::GoesOn).await.unwrap();
        assert_eq!(self.at_rest(&id).await.life.phase(), Phase::Paused);
        id
    }

    pub(crate) async fn phase(&self, id: &SandboxId) -> Phase {
        self.engine.get(&self.tenant, id).await.unwrap().life.phase()
    }

    pub(crate) async fn reaches(&self, id: &SandboxId, phase: Phase) {
        eventually(&format!("{id} becomes {phase:?}"), async || {
            (self.phase(id).await == phase).then_some(())
        })
        .await;
    }

    /// Waits until the machine holds exactly `count` sandboxes.
    pub(crate) async fn machine_holds(&self, count: usize) -> Vec<(SandboxId, Observed)> {
        eventually(&format!("the machine holds {count}"), async || {
            Some(self.machine.sandboxes()).filter(|there| there.len() == count)
        })
        .await
    }

    /// Declares a pool of plain sandboxes and waits until it is full.
    pub(crate) async fn pool(&self, name: &str, size: usize) {
        self.engine.set_pool(sample::pool(name, size)).await.unwrap();
        self.stocked(name, size).await;
    }

    pub(crate) async fn status(&self, name: &str) -> Option<PoolStatus> {
        self.engine.pools().await.into_iter().find(|status| status.pool.name == name)
    }

    /// Waits until exactly `ready` sandboxes of a pool are ready and none is being made.
    pub(crate) async fn stocked(&self, name: &str, ready: usize) -> PoolStatus {
        eventually(&format!("{name} has {ready} ready"), async || {
            let status = self.status(name).await?;
            (status.ready == ready && status.starting == 0).then_some(status)
        })
        .await
    }

    /// Sandboxes on disk that are stock.
    pub(crate) fn stock_on_disk(&self) -> usize {
        let loaded = self.disk.contents().sandboxes;
        loaded.iter().filter(|sandbox| sandbox.stock_of.is_some()).count()
    }

    /// A crash: the engine ends without writing anything more.
    pub(crate) async fn replace_engine(&mut self) {
        let (machine, disk) = (self.machine.clone(), self.disk.clone());
        let started = Engine::start(self.config.clone(), machine, disk, self.clock.clone());
        self.engine = started.await.unwrap();
    }

    /// Waits until `count` actions have begun.
    pub(crate) async fn has_begun(&self, count: u64) {
        eventually(&format!("{count} actions have begun"), async || {
            (self.machine.tally().begun == count).then_some(())
        })
        .await;
    }
}

/// A request that takes stock of `pool` or waits for it.
pub(crate) fn claim(pool: &str, patience: Duration) -> Create {
    let claim = Claim { pool: Some(pool.to_owned()), create_on_no_stock: false, patience };
    Create { claim, ..sample::create() }
}

pub(crate) fn script(text: &str) -> Create {
    let mut create = sample::create();
    create.spec.entrypoint = ["sh", "-c", text].map(str::to_owned).to_vec();
    create
}
