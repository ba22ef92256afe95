//! What outlives a crash: the machine, the disk, the clock and what users remember.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_core::Timestamp;
use atoll_engine::{Clock, Engine, EngineConfig, Random};
use atoll_runtime_sim::{Chaos, SimRuntime};
use atoll_testkit::{FaultyStore, ManualClock, Seeded, StoreFaults, sample};

use crate::model::Model;

/// Requests, faults and clock jumps in one life of an engine, at the most.
const STEPS_MAX: u64 = 50;
/// Scheduler turns between two of them, at the most.
const TURNS_MAX: u64 = 12;
/// At least as long as the engine waits between two looks at everything.
const LOOK: Duration = Duration::from_secs(11);

pub(crate) struct World {
    pub(crate) random: Seeded,
    pub(crate) machine: Arc<SimRuntime>,
    pub(crate) disk: Arc<FaultyStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) model: Arc<Mutex<Model>>,
    names: Arc<Mutex<Seeded>>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Seeded::new(seed),
            machine: SimRuntime::new(),
            disk: FaultyStore::new(),
            clock: ManualClock::new(sample::NOW),
            model: Arc::default(),
            names: Arc::new(Mutex::new(Seeded::new(!seed))),
        }
    }

    pub(crate) fn story(&self) -> Vec<String> {
        self.model.lock().unwrap_or_else(std::sync::PoisonError::into_inner).story.clone()
    }

    fn config(&self) -> EngineConfig {
        let names = self.names.clone();
        EngineConfig {
            actions_at_once: 3,
            stock_at_once: 2,
            sandboxes_per_tenant_max: 12,
            snapshots_per_tenant_max: 6,
            random: Random::new(move |bytes| names.lock().unwrap().fill(bytes)),
            ..EngineConfig::default()
        }
    }

    pub(crate) async fn start(&self) -> Engine {
        let (machine, disk, clock) = (self.machine.clone(), self.disk.clone(), self.clock.clone());
        Engine::start(self.config(), machine, disk, clock).await.expect("the engine starts")
    }

    fn set_faults(&mut self) {
        let kind = |random: &mut Seeded, max| random.below(2) * random.below(max);
        self.machine.set_chaos(Some(Chaos {
            seed: self.random.number(),
            transient_percent: kind(&mut self.random, 40),
            permanent_percent: kind(&mut self.random, 10),
            yields_max: self.random.below(8),
        }));
        self.disk.set_faults(Some(StoreFaults {
            seed: self.random.number(),
            fail_percent: kind(&mut self.random, 40),
            yields_max: self.random.below(8),
        }));
    }

    fn end_faults(&self) {
        self.machine.set_chaos(None);
        self.disk.set_faults(None);
    }

    /// One life of an engine, ended at an arbitrary await point: dropping the scheduler drops
    /// every task wherever it stands.
    pub(crate) fn live_and_crash(&mut self) {
        self.set_faults();
        let heals = self.random.below(3) == 0;
        let scheduler = scheduler();
        scheduler.block_on(async {
            let engine = self.start().await;
            for _ in 0..self.random.below(STEPS_MAX) {
                self.step(&engine);
                for _ in 0..self.random.below(TURNS_MAX) {
                    tokio::task::yield_now().await;
                }
                if self.random.below(6) == 0 {
                    // Real time passes: the engine looks at everything amid all else.
                    tokio::time::advance(LOOK).await;
                }
                self.check_always(&engine).await;
            }
            if heals {
                // The trouble ends while the same engine runs on.
                self.end_faults();
                self.converge(&engine).await;
                self.check_at_rest(&engine).await;
            }
        });
        drop(scheduler);
        self.model.lock().unwrap().crashed();
    }

    pub(crate) fn move_clock(&mut self) {
        let by = Duration::from_millis(self.random.below(40_000));
        match self.random.below(6) {
            0 => {
                let back = i64::try_from(by.as_micros() * 4).unwrap();
                self.set_clock(Timestamp::from_micros(self.clock.now().as_micros() - back));
            }
            1 => self.set_clock(self.clock.now().saturating_add(by * 100)),
            _ => self.set_clock(self.clock.now().saturating_add(by)),
        }
    }

    pub(crate) fn set_clock(&mut self, now: Timestamp) {
        // Before the engine can see it: what expires by this is allowed to be gone.
        self.model.lock().unwrap().clock_moved(now);
        self.clock.set(now);
    }

    /// A life without faults that must bring everything to rest, then end everything.
    pub(crate) fn converge_and_clear(&mut self) {
        self.end_faults();
        let scheduler = scheduler();
        scheduler.block_on(async {
            let engine = self.start().await;
            self.converge(&engine).await;
            self.check_at_rest(&engine).await;
            engine.shutdown().await;
            // Another life finds the same.
            let engine = self.start().await;
            self.converge(&engine).await;
            self.check_at_rest(&engine).await;
            self.clear(&engine).await;
            engine.shutdown().await;
        });
    }
}

fn scheduler() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a scheduler")
}

/// Returns when nothing is left to run: paused time moves only then.
pub(crate) async fn idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
