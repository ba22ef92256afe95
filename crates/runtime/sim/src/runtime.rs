//! `Runtime` over the simulated world, and the levers of tests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use atoll_control::{BoxedIo, LogTail, Port, Usage};
use atoll_core::{Action, Error, Observed, Result, Sandbox, SandboxId, SnapshotId};
use atoll_engine::Clock;
use atoll_engine::seam::{Capabilities, Event, Runtime, RuntimeError};
use tokio::sync::mpsc;

use crate::agent;
use crate::fault::{self, Chaos, Tally};
use crate::script::Files;
use crate::world::{Item, World};

/// A machine that exists only in memory. It outlives the engines that use it, so a test can crash
/// one and start another over the same machine.
pub struct SimRuntime(Mutex<World>);

/// Counts an action as in flight until it ends or is dropped.
struct InFlight<'a> {
    runtime: &'a SimRuntime,
    id: &'a SandboxId,
    ended: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut world = self.runtime.world();
        world.in_flight.remove(self.id);
        world.tally.dropped += u64::from(!self.ended);
    }
}

impl SimRuntime {
    /// An empty machine on which everything works.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next `count` actions fail, `transient`ly or for good.
    pub fn fail_next(&self, count: usize, transient: bool) {
        let failure = if transient { fault::busy() } else { fault::broken() };
        self.world().faults.scheduled.extend(std::iter::repeat_n(failure, count));
    }

    /// Makes things go wrong at random, or stops that.
    pub fn set_chaos(&self, chaos: Option<Chaos>) {
        let mut world = self.world();
        world.faults.chaos = chaos;
        world.faults.scheduled.clear();
    }

    /// Makes every action take `delay` by `clock`.
    pub fn slow_down(&self, clock: Arc<dyn Clock>, delay: Duration) {
        self.world().faults.delay = Some((clock, delay));
    }

    /// Lets actions of this kind wait until [`SimRuntime::release`].
    pub fn hold(&self, action: Action) {
        self.world().faults.held.send_replace(Some(action));
    }

    /// Lets snapshots wait until [`SimRuntime::release`].
    pub fn hold_snapshots(&self) {
        self.world().faults.snapshots_held.send_replace(true);
    }

    /// Lets waiting actions and snapshots go on.
    pub fn release(&self) {
        self.world().faults.held.send_replace(None);
        self.world().faults.snapshots_held.send_replace(false);
    }

    /// Makes a sandbox vanish as if the machine had been restarted; nobody is told.
    pub fn lose(&self, id: &SandboxId) {
        self.world().items.remove(id);
    }

    /// Ends a sandbox's first process.
    pub fn exit(&self, id: &SandboxId, code: i32) {
        self.world().exit(id, code);
    }

    /// Puts something on the machine that no engine asked for.
    pub fn plant(&self, id: SandboxId) {
        let item = Item {
            state: Observed::Running,
            files: Files::default(),
            log: Vec::new(),
            from: None,
            told: None,
            asleep: false,
        };
        self.world().items.insert(id, item);
    }

    /// Says something about a sandbox, as the progress of a pull would be told.
    pub fn say(&self, id: &SandboxId, message: &str) {
        self.world().tell(Event::Note(id.clone(), message.to_owned()));
    }

    /// Everything that exists, half-made or not.
    pub fn sandboxes(&self) -> Vec<(SandboxId, Observed)> {
        self.world().items.iter().map(|(id, item)| (id.clone(), item.state.clone())).collect()
    }

    /// The record that a sandbox was last told.
    pub fn told(&self, id: &SandboxId) -> Option<Sandbox> {
        self.world().items.get(id).and_then(|item| item.told.clone())
    }

    /// All snapshots that exist.
    pub fn kept(&self) -> Vec<SnapshotId> {
        self.world().snapshots.keys().cloned().collect()
    }

    /// What was done so far.
    pub fn tally(&self) -> Tally {
        self.world().tally
    }

    async fn let_others_run(&self) {
        let yields = self.world().faults.next_yields();
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
    }

    async fn wait_while_held(&self, action: Action) {
        let mut held = self.world().faults.held.subscribe();
        // The sender lives as long as this runtime.
        drop(held.wait_for(|held| *held != Some(action)).await);
        let delay = self.world().faults.delay.clone();
        if let Some((clock, delay)) = delay {
            clock.sleep_until(clock.now().saturating_add(delay)).await;
        }
    }

    async fn act(&self, sandbox: &Sandbox, action: Action) -> Result<Observed, RuntimeError> {
        self.wait_while_held(action).await;
        self.let_others_run().await;
        if action == Action::Create {
            self.world().prepare(sandbox)?;
            self.let_others_run().await;
        }
        let failure = self.world().faults.next_failure();
        if let Some(failure) = failure {
            return Err(failure);
        }
        let seen = self.world().apply(sandbox, action);
        self.let_others_run().await;
        Ok(seen)
    }
}

fn missing(id: &SandboxId) -> Error {
    Error::not_found(format_args!("sandbox {id}"))
}

#[async_trait]
impl Runtime for SimRuntime {
    fn capabilities(&self) -> Capabilities {
        Capabilities { pause: true, snapshot: true, isolation: vec!["sim".to_owned()] }
    }

    async fn check(&self, sandbox: &Sandbox) -> Result<()> {
        if sandbox.spec.mounts.is_empty() {
            return Ok(());
        }
        Err(Error::invalid("mounts", "the simulated runtime has no folders; leave them out"))
    }

    async fn apply(&self, sandbox: &Sandbox, action: Action) -> Result<Observed, RuntimeError> {
        self.world().begin(&sandbox.id);
        let mut in_flight = InFlight { runtime: self, id: &sandbox.id, ended: false };
        let outcome = self.act(sandbox, action).await;
        in_flight.ended = true;
        outcome
    }

    async fn is_untouched(&self, sandbox: &Sandbox) -> bool {
        self.let_others_run().await;
        let told = self.told(&sandbox.id);
        told.is_some_and(|told| told.access_token == sandbox.access_token)
    }

    async fn observe(&self, id: &SandboxId) -> Result<Observed, RuntimeError> {
        // An honest answer, but it may be old when it arrives.
        let seen = self.world().seen(id);
        self.let_others_run().await;
        Ok(seen)
    }

    async fn list(&self) -> Result<Vec<(SandboxId, Observed)>, RuntimeError> {
        let listed = self.sandboxes();
        self.let_others_run().await;
        Ok(listed)
    }

    async fn remove_orphan(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.let_others_run().await;
        self.world().remove(id);
        Ok(())
    }

    fn events(&self) -> Option<mpsc::Receiver<Event>> {
        Some(self.world().subscribe())
    }

    async fn connect(&self, id: &SandboxId, port: Port) -> Result<BoxedIo> {
        let seen = self.world().seen(id);
        match (seen, port) {
            (Observed::Absent, _) => Err(missing(id)),
            (Observed::Running, Port::Agent) => {
                let (near, far) = tokio::io::duplex(agent::PIPE_BYTES);
                tokio::spawn(agent::serve(far));
                Ok(Box::new(near))
            }
            (_, port) => {
                let message = format!("nothing listens on {port:?} of sandbox {id}");
                Err(Error::unavailable(message).with_reason("PORT_CLOSED"))
            }
        }
    }

    async fn logs(&self, id: &SandboxId, bytes_max: usize) -> Result<LogTail> {
        let world = self.world();
        let log = &world.items.get(id).ok_or_else(|| missing(id))?.log;
        let from = log.len().saturating_sub(bytes_max);
        Ok(LogTail { bytes: log[from..].to_vec(), truncated: from > 0 })
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage> {
        let world = self.world();
        world.items.get(id).ok_or_else(|| missing(id))?;
        let cpu = Duration::from_millis(1);
        Ok(Usage { cpu, memory_bytes: 1 << 20, pids: 1, ..Usage::default() })
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<(), RuntimeError> {
        self.world().tally.snapshots += 1;
        let mut held = self.world().faults.snapshots_held.subscribe();
        // The sender lives as long as this runtime.
        drop(held.wait_for(|held| !held).await);
        self.let_others_run().await;
        let mut world = self.world();
        if let Some(failure) = world.faults.next_failure() {
            return Err(failure);
        }
        match world.items.get(id).filter(|item| item.state == Observed::Running) {
            Some(item) => {
                let files = item.files.clone();
                world.snapshots.insert(snapshot.clone(), files);
                Ok(())
            }
            None => Err(RuntimeError::permanent(
                "SANDBOX_NOT_RUNNING",
                "the sandbox is not running",
                "take the snapshot while it is",
            )),
        }
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotId>, RuntimeError> {
        Ok(self.kept())
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<()> {
        self.let_others_run().await;
        let mut world = self.world();
        let user = world.items.iter().find(|(_, item)| item.from.as_ref() == Some(snapshot));
        if let Some((user, _)) = user {
            return Err(Error::conflict(format!("sandbox {user} uses snapshot {snapshot}")));
        }
        world.snapshots.remove(snapshot);
        Ok(())
    }
}
