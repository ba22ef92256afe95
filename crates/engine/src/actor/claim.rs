//! Where a new sandbox comes from: made from nothing, or stock that becomes somebody's.
//!
//! A claim is a creation whose runtime half finds the sandbox already there. The record of the
//! stock is replaced by one of the caller's with the same id, in the phase of a creation that has
//! begun; its commit and the runtime's work go on at the same time as for any creation. From then
//! on the sandbox is never stock again, whatever fails.

use std::sync::Arc;

use atoll_control::Claim;
use atoll_core::{
    Deadline, Error, ErrorKind, Lifecycle, RegistryAuth, Sandbox, SandboxId, Timestamp,
};
use tokio::time::Instant;

use super::record::Record;
use super::waiters::Waiter;
use super::{Actor, Reply};
use crate::interest::Seat;

/// What is asked for, and by whom.
pub(super) struct Order {
    pub(super) sandbox: Box<Sandbox>,
    pub(super) auth: Option<RegistryAuth>,
    pub(super) seat: Seat,
    pub(super) reply: Reply<Arc<Sandbox>>,
}

impl Actor {
    pub(super) fn create(&mut self, order: Order, claim: Claim) {
        // Those who wait go before those who come.
        self.serve_waiters();
        if let Err(error) = self.admit(&order.sandbox) {
            let _caller_gone = order.reply.send(Err(error));
            return;
        }
        let pools = self.fitting_pools(&order, &claim);
        if let Some((pool, id)) = self.ready_stock(&pools) {
            self.claim(order, &pool, &id, Instant::now());
            return;
        }
        if let Some(pool) = pools.first().and_then(|name| self.pools.get_mut(name)) {
            pool.misses += 1;
        }
        if claim.create_on_no_stock {
            self.make(order);
        } else {
            self.wait_for_stock(order, pools, &claim);
        }
    }

    /// Makes it from nothing.
    pub(super) fn make(&mut self, order: Order) {
        let Order { sandbox, auth, seat, reply } = order;
        if !seat.give(&sandbox.id) {
            return;
        }
        let now = self.now();
        let record = Record { auth, ..Record::proposed(*sandbox, now, Some(reply)) };
        self.accept(record);
    }

    fn fitting_pools(&self, order: &Order, claim: &Claim) -> Vec<String> {
        let declared = self.pools.iter().filter_map(|(name, record)| {
            let pool = record.pool.as_ref()?;
            let fits = match &claim.pool {
                Some(wanted) => wanted == name,
                // Credentials are for an image that the pool may not have been allowed to pull.
                None => order.auth.is_none() && pool.spec.fits(&order.sandbox.spec),
            };
            fits.then(|| name.clone())
        });
        declared.collect()
    }

    /// The oldest sandbox that is ready in any of `pools`.
    fn ready_stock(&self, pools: &[String]) -> Option<(String, SandboxId)> {
        let oldest = |name: &String| {
            let pool = self.pools.get(name)?;
            let spec = &pool.pool.as_ref()?.spec;
            let free = |id: &&SandboxId| {
                self.sandboxes
                    .get(*id)
                    .is_some_and(|record| record.is_free_stock() && record.sandbox.spec == *spec)
            };
            Some((pool.ready.iter().find(free)?.clone(), name.clone()))
        };
        pools.iter().filter_map(oldest).min().map(|(id, name)| (name, id))
    }

    /// `id`, which is stock of `pool`, becomes the caller's.
    fn claim(&mut self, order: Order, pool: &str, id: &SandboxId, since: Instant) {
        let Order { sandbox, auth, seat, reply } = order;
        if !seat.give(id) {
            return;
        }
        let now = self.now();
        let sandbox = renewed(Sandbox { id: id.clone(), ..*sandbox }, now);
        self.unlist_stock(pool, id);
        let Some(stock) = self.sandboxes.remove(id) else { return };
        if let Some(at) = stock.timer {
            self.timers.remove(&(at, id.clone()));
        }
        let as_it_is = stock.sandbox.spec.fits(&sandbox.spec);
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.hits += u64::from(as_it_is);
            pool.replaced += u64::from(!as_it_is);
        }
        let record = Record {
            auth,
            claimed: as_it_is,
            claimed_since: as_it_is.then_some(since),
            ..Record::proposed(sandbox, now, Some(reply))
        };
        self.accept(record);
    }

    fn wait_for_stock(&mut self, order: Order, pools: Vec<String>, claim: &Claim) {
        if pools.is_empty() {
            let _caller_gone = order.reply.send(Err(no_pool(claim)));
            return;
        }
        if self.is_hopeless(&pools) {
            let _caller_gone = order.reply.send(Err(self.no_stock(&pools)));
            return;
        }
        let since = Instant::now();
        let until = since + claim.patience;
        let Order { sandbox, auth, seat, reply } = order;
        let waiter = Waiter { sandbox, auth, pools, since, until, seat, reply };
        if let Err(waiter) = self.waiters.push(waiter) {
            let error = self.no_stock(&waiter.pools);
            let _caller_gone = waiter.reply.send(Err(error));
        }
    }

    /// Hands out what is ready to those who wait for it.
    pub(super) fn serve_waiters(&mut self) {
        if self.waiters.is_empty() || self.stopping.is_some() {
            return;
        }
        let names: Vec<_> = self.pools.keys().cloned().collect();
        for name in names {
            while let Some((pool, id)) = self.ready_stock(std::slice::from_ref(&name)) {
                let Some(waiter) = self.waiters.next_for(&pool) else { break };
                let Waiter { sandbox, auth, since, seat, reply, .. } = waiter;
                if let Err(error) = self.admit(&sandbox) {
                    let _caller_gone = reply.send(Err(error));
                    continue;
                }
                self.claim(Order { sandbox, auth, seat, reply }, &pool, &id, since);
            }
        }
    }

    /// Sends away those whose patience ran out.
    pub(super) fn dismiss_waiters(&mut self) {
        let now = Instant::now();
        for waiter in self.waiters.take_where(|waiter| waiter.until <= now) {
            let error = self.no_stock(&waiter.pools);
            let _caller_gone = waiter.reply.send(Err(error));
        }
    }

    /// Sends away those who wait for pools that were emptied or removed.
    pub(super) fn refuse_hopeless(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        let gone: Vec<_> =
            self.pools.iter().filter(|(_, pool)| pool.size() == 0).map(|(name, _)| name).collect();
        let out = |waiter: &Waiter| waiter.pools.iter().all(|name| gone.contains(&name));
        for waiter in self.waiters.take_where(out) {
            let error = self.no_stock(&waiter.pools);
            let _caller_gone = waiter.reply.send(Err(error));
        }
    }

    fn is_hopeless(&self, pools: &[String]) -> bool {
        pools.iter().all(|name| self.pools.get(name).is_none_or(|pool| pool.size() == 0))
    }

    fn no_stock(&self, pools: &[String]) -> Error {
        let told: Vec<_> = pools
            .iter()
            .map(|name| {
                let pool = self.pools.get(name);
                let (size, starting) =
                    pool.map_or((0, 0), |pool| (pool.size(), pool.stock.len() - pool.ready.len()));
                let trouble = pool.and_then(|pool| pool.trouble.as_deref());
                let trouble = trouble.map(|why| format!("; the last one failed: {why}"));
                let trouble = trouble.unwrap_or_default();
                format!("{name} (size {size}, {starting} being made{trouble})")
            })
            .collect();
        let message = format!(
            "no sandbox of pool {} is ready; try again later, let the operator raise the pool's \
             size, or allow the sandbox to be made from nothing",
            told.join(" or ")
        );
        Error::new(ErrorKind::Exhausted, message).with_reason("NO_STOCK")
    }

    /// A sandbox that was claimed runs: tells how long that took.
    pub(super) fn claim_done(&self, since: Instant) {
        let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.counters.claims.record(micros);
    }
}

/// The same wish, as if it had been made now: a wait for stock costs no lifetime.
fn renewed(sandbox: Sandbox, now: Timestamp) -> Sandbox {
    let deadline = sandbox.life.deadline().map(|deadline| {
        let lifetime = sandbox.created_at.until(deadline.at);
        Deadline { at: now.saturating_add(lifetime), ..deadline }
    });
    Sandbox { created_at: now, life: Lifecycle::new(now, deadline), ..sandbox }
}

fn no_pool(claim: &Claim) -> Error {
    let message = match &claim.pool {
        Some(name) => format!(
            "there is no pool {name}; let the operator declare it, or allow the sandbox to be \
             made from nothing"
        ),
        None => "no pool keeps such sandboxes ready; let the operator declare one, or allow the \
                 sandbox to be made from nothing"
            .to_owned(),
    };
    Error::new(ErrorKind::NotFound, message).with_reason("NO_POOL")
}
