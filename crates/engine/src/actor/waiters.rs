//! Callers who wait for stock, served in turn by tenant and in order within each.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use atoll_core::{RegistryAuth, Sandbox, TenantId};
use tokio::time::Instant;

use super::Reply;
use crate::interest::Seat;

/// Callers who may wait at once; more are refused.
const WAITERS_MAX: usize = 4096;

/// One caller.
pub(super) struct Waiter {
    pub(super) sandbox: Box<Sandbox>,
    pub(super) auth: Option<RegistryAuth>,
    /// The pools that would do.
    pub(super) pools: Vec<String>,
    pub(super) since: Instant,
    pub(super) until: Instant,
    pub(super) seat: Seat,
    pub(super) reply: Reply<Arc<Sandbox>>,
}

#[derive(Default)]
pub(super) struct Waiters {
    queues: BTreeMap<TenantId, VecDeque<Waiter>>,
    /// Whose turn it is: the first was served longest ago.
    turns: VecDeque<TenantId>,
    next_due: Option<Instant>,
}

impl Waiters {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// When the next patience runs out.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.next_due
    }

    /// Callers who wait for this pool.
    pub(super) fn count(&self, pool: &str) -> usize {
        let wants = |waiter: &&Waiter| {
            !waiter.seat.is_left() && waiter.pools.iter().any(|name| name == pool)
        };
        self.queues.values().flatten().filter(wants).count()
    }

    /// Queues a caller; hands it back when too many wait.
    pub(super) fn push(&mut self, waiter: Waiter) -> Result<(), Box<Waiter>> {
        if self.len() >= WAITERS_MAX {
            self.retain(|waiter| !waiter.seat.is_left());
        }
        if self.len() >= WAITERS_MAX {
            return Err(Box::new(waiter));
        }
        let tenant = waiter.sandbox.tenant.clone();
        let queue = self.queues.entry(tenant.clone()).or_default();
        if queue.is_empty() {
            self.turns.push_back(tenant);
        }
        queue.push_back(waiter);
        self.tidy();
        Ok(())
    }

    /// The caller whose turn it is among those whom `pool` would do.
    pub(super) fn next_for(&mut self, pool: &str) -> Option<Waiter> {
        let wants = |waiter: &Waiter| waiter.pools.iter().any(|name| name == pool);
        for turn in 0..self.turns.len() {
            let tenant = &self.turns[turn];
            let Some(queue) = self.queues.get_mut(tenant) else { continue };
            queue.retain(|waiter| !waiter.seat.is_left());
            let Some(place) = queue.iter().position(wants) else { continue };
            let waiter = queue.remove(place);
            let tenant = self.turns.remove(turn).expect("the turn was looked up above");
            self.turns.push_back(tenant);
            self.tidy();
            return waiter;
        }
        self.tidy();
        None
    }

    /// Those for whom `out` holds; they wait no more.
    pub(super) fn take_where(&mut self, out: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let mut taken = Vec::new();
        for queue in self.queues.values_mut() {
            let (leaving, staying) = std::mem::take(queue).into_iter().partition(&out);
            *queue = staying;
            taken.extend::<VecDeque<_>>(leaving);
        }
        self.tidy();
        taken.retain(|waiter| !waiter.seat.is_left());
        taken
    }

    fn len(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    fn retain(&mut self, keep: impl Fn(&Waiter) -> bool) {
        self.queues.values_mut().for_each(|queue| queue.retain(&keep));
        self.tidy();
    }

    fn tidy(&mut self) {
        self.queues.retain(|_, queue| !queue.is_empty());
        self.turns.retain(|tenant| self.queues.contains_key(tenant));
        self.next_due = self.queues.values().flatten().map(|waiter| waiter.until).min();
    }
}
