//! The one task that owns all records.
//!
//! Each input only changes state; [`Actor::advance`] then decides from the record alone what is
//! next for a sandbox, so every path (request, outcome, restart, retry) ends in the same place.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use atoll_control::{Claim, Pool, PoolStatus};
use atoll_core::{
    RegistryAuth, Result, Sandbox, SandboxId, Snapshot, SnapshotId, TenantId, Timestamp,
};
use tokio::sync::{mpsc, oneshot};

use crate::config::EngineConfig;
use crate::counters::Counters;
use crate::interest::Seat;
use crate::seam::{Clock, Event, Runtime, Store};
use crate::view::View;

mod advance;
mod claim;
mod commit;
mod edit;
mod fork;
mod jobs;
mod lanes;
mod ledger;
mod look;
mod pools;
mod record;
mod recover;
mod snapshots;
mod stock;
mod waiters;

use claim::Order;
pub(crate) use edit::Edit;
use fork::Fork;
pub(crate) use fork::ForkRequest;
use jobs::{Done, Jobs};
use lanes::Lanes;
use ledger::Ledger;
pub use pools::POOLS_MAX;
use pools::PoolRecord;
use record::{Record, SnapshotRecord};
pub use stock::STOCK_TENANT;
pub(crate) use stock::stock_tenant;
use waiters::Waiters;

/// Inputs taken at once before the next commit begins: what arrives together is written together.
const INPUTS_AT_ONCE: usize = 256;

/// Answers a caller; one that went away doesn't matter.
pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

/// What handles ask for.
pub(crate) enum Request {
    Create {
        sandbox: Box<Sandbox>,
        auth: Option<RegistryAuth>,
        claim: Claim,
        seat: Seat,
        reply: Reply<Arc<Sandbox>>,
    },
    Edit {
        id: SandboxId,
        edit: Edit,
        reply: Reply<Arc<Sandbox>>,
    },
    Keep {
        id: SandboxId,
        snapshot: SnapshotId,
        name: Option<String>,
        reply: Reply<Arc<Snapshot>>,
    },
    DeleteSnapshot {
        id: SnapshotId,
        reply: Reply<Arc<Snapshot>>,
    },
    Fork(Box<ForkRequest>),
    /// Declares a pool, or forgets it.
    SetPool {
        name: String,
        pool: Option<Box<Pool>>,
        reply: Reply<()>,
    },
    Pools(Reply<Vec<PoolStatus>>),
    /// No more stock is made, what there is of it goes; answered once nothing is being removed.
    Removals(oneshot::Sender<()>),
    Shutdown(oneshot::Sender<()>),
}

/// Owner of all records. Ordered maps make a seeded run repeatable.
pub(crate) struct Actor {
    config: EngineConfig,
    runtime: Arc<dyn Runtime>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    view: Arc<View>,
    counters: Arc<Counters>,
    sandboxes: BTreeMap<SandboxId, Record>,
    snapshots: BTreeMap<SnapshotId, SnapshotRecord>,
    pools: BTreeMap<String, PoolRecord>,
    /// Forks whose files are being kept.
    forks: BTreeMap<SnapshotId, Fork>,
    waiters: Waiters,
    /// Stock changed: pools may have to be filled or emptied.
    tend: bool,
    /// A hidden snapshot may have lost its last user.
    sweep: bool,
    /// Sandboxes whose callers went away before they had them.
    abandoned: mpsc::UnboundedReceiver<SandboxId>,
    /// When to look at which sandbox again: deadlines and retries.
    timers: BTreeSet<(Timestamp, SandboxId)>,
    /// Sandboxes that count against the quota.
    living: HashMap<TenantId, usize>,
    lanes: Lanes,
    ledger: Ledger,
    jobs: Jobs,
    /// Orphans being removed, so that a slow removal isn't sent twice.
    orphans: BTreeSet<SandboxId>,
    /// Grows whenever an action begins or ends; tells observations from before from those after.
    epoch: u64,
    looking: bool,
    clock_seen: Timestamp,
    stopping: Option<Vec<oneshot::Sender<()>>>,
    /// The server is about to stop for good: stock is not kept any more.
    closing: bool,
    /// Who waits until nothing is being removed.
    awaiting_removals: Vec<oneshot::Sender<()>>,
}

enum Input {
    Done(Done),
    Time,
    Look,
    StoreAgain,
    Impatient,
    Abandoned(SandboxId),
    Request(Option<Request>),
    Event(Event),
}

impl Actor {
    pub(crate) fn new(
        config: EngineConfig,
        runtime: Arc<dyn Runtime>,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        view: Arc<View>,
        counters: Arc<Counters>,
        abandoned: mpsc::UnboundedReceiver<SandboxId>,
    ) -> Self {
        Self {
            lanes: Lanes::new(config.actions_at_once, config.stock_at_once),
            clock_seen: clock.now(),
            config,
            runtime,
            store,
            clock,
            view,
            counters,
            sandboxes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            pools: BTreeMap::new(),
            forks: BTreeMap::new(),
            waiters: Waiters::default(),
            tend: false,
            sweep: false,
            abandoned,
            timers: BTreeSet::new(),
            living: HashMap::new(),
            ledger: Ledger::default(),
            jobs: Jobs::default(),
            orphans: BTreeSet::new(),
            epoch: 0,
            looking: false,
            stopping: None,
            closing: false,
            awaiting_removals: Vec::new(),
        }
    }

    /// Runs until shutdown or until every handle is gone.
    pub(crate) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut events = self.runtime.events();
        // The first look was part of the recovery.
        let first = tokio::time::Instant::now() + self.config.look_every;
        let mut ticks = tokio::time::interval_at(first, self.config.look_every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Without handles there is nothing to receive; asking again would only spin.
        let mut has_handles = true;
        loop {
            self.pump();
            if self.is_stopped() {
                break;
            }
            let timer = self.next_timer();
            let input = tokio::select! {
                biased;
                done = self.jobs.next(), if !self.jobs.is_empty() => Input::Done(done),
                () = wake(self.clock.as_ref(), timer) => Input::Time,
                _ = ticks.tick() => Input::Look,
                () = self.ledger.pause_over() => Input::StoreAgain,
                () = due(self.waiters.next_due()) => Input::Impatient,
                Some(id) = self.abandoned.recv() => Input::Abandoned(id),
                request = requests.recv(), if has_handles => Input::Request(request),
                Some(event) = next_event(&mut events) => Input::Event(event),
            };
            has_handles &= !matches!(input, Input::Request(None));
            self.take(input);
            for _ in 0..INPUTS_AT_ONCE {
                // One of each in turn, so that a flood of one kind can't starve the other.
                let request = requests.try_recv().map(|request| Input::Request(Some(request)));
                let event = events.as_mut().and_then(|events| events.try_recv().ok());
                if request.is_err() && event.is_none() {
                    break;
                }
                request.into_iter().chain(event.map(Input::Event)).for_each(|i| self.take(i));
            }
        }
        for reply in self.stopping.take().into_iter().flatten() {
            let _caller_gone = reply.send(());
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Done(done) => self.done(done),
            Input::Time => self.time_passed(),
            Input::Look => self.look(),
            Input::StoreAgain => self.ledger.pause_is_over(),
            Input::Impatient => self.dismiss_waiters(),
            Input::Abandoned(id) => {
                if let Some(record) = self.sandboxes.get_mut(&id) {
                    record.abandoned = true;
                    self.advance(&id);
                }
            }
            Input::Request(Some(Request::Shutdown(reply))) => {
                self.stopping.get_or_insert_default().push(reply);
            }
            Input::Request(None) => {
                self.stopping.get_or_insert_default();
            }
            Input::Request(Some(request)) => self.request(request),
            Input::Event(Event::Seen(id, _)) => self.hint(&id),
            Input::Event(Event::Note(id, message)) => self.note(&id, &message),
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Worked(id, outcome) => self.worked(&id, outcome),
            Done::Kept(id, snapshot, result) => self.kept(&id, &snapshot, result),
            Done::Seen(id, epoch, result) => self.seen(&id, epoch, result),
            Done::Looked(epoch, result) => self.looked(epoch, result),
            Done::OrphanRemoved(id) => {
                self.orphans.remove(&id);
            }
            Done::SnapshotRemoved(id) => self.snapshot_removed(&id),
            Done::Committed(result) => self.committed(result),
        }
    }

    fn request(&mut self, request: Request) {
        if self.stopping.is_some() {
            // Dropping the reply tells the caller that the server is shutting down.
            return;
        }
        match request {
            Request::Create { sandbox, auth, claim, seat, reply } => {
                self.create(Order { sandbox, auth, seat, reply }, claim);
            }
            Request::Edit { id, edit, reply } => self.edit(&id, edit, Some(reply)),
            Request::Keep { id, snapshot, name, reply } => self.keep(&id, snapshot, name, reply),
            Request::DeleteSnapshot { id, reply } => self.delete_snapshot(&id, reply),
            Request::Fork(request) => self.fork(*request),
            Request::SetPool { name, pool, reply } => self.set_pool(name, pool, reply),
            Request::Pools(reply) => {
                let _caller_gone = reply.send(Ok(self.pool_statuses()));
            }
            Request::Removals(reply) => {
                (self.closing, self.tend) = (true, true);
                self.awaiting_removals.push(reply);
            }
            Request::Shutdown(_) => unreachable!("taken before"),
        }
    }

    /// Begins what there is room for.
    fn pump(&mut self) {
        self.serve_waiters();
        self.tend_stock();
        self.sweep_snapshots();
        while let Some(id) = self.lanes.next() {
            self.advance(&id);
        }
        self.commit();
        let is_clear = || {
            self.pools.values().all(|pool| pool.stock.is_empty())
                && !self.sandboxes.values().any(Record::is_leaving)
        };
        if !self.awaiting_removals.is_empty() && is_clear() {
            for reply in self.awaiting_removals.drain(..) {
                let _caller_gone = reply.send(());
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopping.is_some() && !self.ledger.is_committing()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

async fn wake(clock: &dyn Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn due(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn next_event(events: &mut Option<mpsc::Receiver<Event>>) -> Option<Event> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}
