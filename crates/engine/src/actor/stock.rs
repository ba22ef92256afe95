//! Keeping pools filled. Stock is an ordinary sandbox that belongs to nobody: it is made, watched
//! and removed like any other, and only its record says whose it will not yet be.

use std::time::Duration;

use atoll_core::{Lifecycle, Phase, Sandbox, SandboxId, TenantId, Timestamp};

use super::ledger::Key;
use super::record::Record;
use super::{Actor, Edit};
use crate::ids;

/// Owner of what nobody owns yet. No key may be given to it, and stock is never shown anyway.
pub const STOCK_TENANT: &str = "atollstock";

pub(crate) fn stock_tenant() -> TenantId {
    TenantId::parse(STOCK_TENANT).expect("this is an id")
}

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

fn is_spoilt(sandbox: &Sandbox) -> bool {
    matches!(sandbox.life.phase(), Phase::Ended | Phase::Failed)
}

impl Actor {
    /// Keeps the pool's lists true after a change of one of its sandboxes.
    pub(super) fn index_stock(&mut self, id: &SandboxId) {
        let Some(record) = self.sandboxes.get(id) else { return };
        let Some(name) = record.sandbox.stock_of.clone() else { return };
        let alive = record.is_alive();
        let ready = alive && record.accepted && record.sandbox.life.phase() == Phase::Running;
        let pool = self.pools.entry(name).or_default();
        if alive {
            pool.stock.insert(id.clone());
        } else {
            pool.stock.remove(id);
        }
        if !ready {
            pool.ready.remove(id);
        } else if pool.ready.insert(id.clone()) {
            (pool.trouble, pool.failures, pool.retry_at) = (None, 0, None);
        }
        self.tend = true;
    }

    /// Forgets `id` as stock: somebody claimed it.
    pub(super) fn unlist_stock(&mut self, pool: &str, id: &SandboxId) {
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.stock.remove(id);
            pool.ready.remove(id);
        }
        self.tend = true;
    }

    /// Takes away stock that won't do and makes what is missing.
    pub(super) fn tend_stock(&mut self) {
        if !std::mem::take(&mut self.tend) || self.stopping.is_some() {
            return;
        }
        let names: Vec<_> = self.pools.keys().cloned().collect();
        for name in &names {
            self.clear_out(name);
        }
        let now = self.now();
        while !self.closing && self.starting_stock() < self.config.stock_at_once {
            let Some(name) = self.neediest_pool(now) else { break };
            self.make_stock(name, now);
        }
        self.forget_pools();
    }

    /// Ends stock that is spoilt, surplus or of an older declaration.
    fn clear_out(&mut self, name: &str) {
        let Some(pool) = self.pools.get(name) else { return };
        let spec = pool.pool.as_ref().map(|pool| &pool.spec);
        let stock = || pool.stock.iter().filter_map(|id| self.sandboxes.get(id));
        let (kept, mut doomed): (Vec<_>, Vec<_>) = stock()
            .partition(|record| Some(&record.sandbox.spec) == spec && !is_spoilt(&record.sandbox));
        // The newest go first, those that don't run yet before all others.
        let mut surplus: Vec<_> = kept.iter().filter(|record| !record.is_undecided()).collect();
        surplus.sort_by_key(|record| {
            let sandbox = &record.sandbox;
            (sandbox.life.phase() == Phase::Running, std::cmp::Reverse(&sandbox.id))
        });
        let staying = kept.iter().filter(|record| !record.is_doomed()).count();
        let wanted = if self.closing { 0 } else { pool.size() };
        let excess = staying.saturating_sub(wanted);
        doomed.extend(surplus.into_iter().take(excess));
        let ready = |record: &&&Record| {
            let key = Key::Sandbox(record.sandbox.id.clone());
            !record.is_undecided() && !self.ledger.is_unsaved(&key)
        };
        let doomed: Vec<_> =
            doomed.iter().filter(ready).map(|record| record.sandbox.clone()).collect();
        for sandbox in doomed {
            if is_spoilt(&sandbox) {
                let why = sandbox.life.diagnostic().map(|d| d.message.clone());
                let why = why.unwrap_or_else(|| "its entrypoint ended".to_owned());
                self.stock_failed(name, &why);
            }
            self.edit(&sandbox.id, Edit::Kill, None);
        }
    }

    /// A sandbox for `pool` could not be made or kept; the next one waits a little longer.
    pub(super) fn stock_failed(&mut self, pool: &str, why: &str) {
        let now = self.now();
        let Some(pool) = self.pools.get_mut(pool) else { return };
        pool.trouble = Some(why.to_owned());
        let pause = PAUSE_MIN * 2_u32.saturating_pow(pool.failures.min(10));
        pool.failures = pool.failures.saturating_add(1);
        pool.retry_at = Some(now.saturating_add(pause.min(PAUSE_MAX)));
    }

    /// When a pool that failed may be filled again.
    pub(super) fn next_stock_timer(&self) -> Option<Timestamp> {
        self.pools.values().filter_map(|pool| pool.retry_at).min()
    }

    /// Pools whose pause is over are filled again.
    pub(super) fn stock_time_passed(&mut self) {
        let now = self.now();
        for pool in self.pools.values_mut() {
            // A pause that seems longer than any means that the clock was set back.
            let over = |at: Timestamp| at <= now || now.until(at) > PAUSE_MAX;
            if pool.retry_at.take_if(|at| over(*at)).is_some() {
                self.tend = true;
            }
        }
    }

    fn starting_stock(&self) -> usize {
        self.pools.values().map(|pool| pool.stock.len() - pool.ready.len()).sum()
    }

    /// The pool that lacks most of what it should have.
    fn neediest_pool(&self, now: Timestamp) -> Option<String> {
        let missing = |pool: &super::PoolRecord| {
            let due = pool.retry_at.is_none_or(|at| at <= now);
            let doomed = |id: &&SandboxId| self.sandboxes.get(*id).is_some_and(Record::is_doomed);
            let staying = pool.stock.len() - pool.stock.iter().filter(doomed).count();
            if due { pool.size().saturating_sub(staying) } else { 0 }
        };
        let all = self.pools.iter().map(|(name, pool)| (missing(pool), name));
        let most = all.filter(|(missing, _)| *missing > 0).max_by_key(|(missing, _)| *missing);
        most.map(|(_, name)| name.clone())
    }

    fn make_stock(&mut self, name: String, now: Timestamp) {
        let Some(pool) = self.pools.get(&name).and_then(|record| record.pool.clone()) else {
            return;
        };
        let random = &self.config.random;
        let id = SandboxId::parse(&ids::name(now, random)).expect("names we make are ids");
        if self.sandboxes.contains_key(&id) {
            self.stock_failed(&name, "the new sandbox's name is taken");
            return;
        }
        let sandbox = Sandbox {
            id,
            tenant: stock_tenant(),
            spec: pool.spec.clone(),
            created_at: now,
            access_token: ids::token(random),
            stock_of: Some(name),
            life: Lifecycle::new(now, None),
        };
        self.accept(Record::proposed(sandbox, now, None));
    }
}
