//! Warm pools as they were declared: in effect when durable.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use atoll_control::{Pool, PoolStatus};
use atoll_core::{Error, ErrorKind, Result, SandboxId, Timestamp};

use super::ledger::Key;
use super::{Actor, Reply};
use crate::seam::Change;

/// Pools that may be declared.
pub const POOLS_MAX: usize = 64;

/// What the actor knows of one pool.
#[derive(Default)]
pub(super) struct PoolRecord {
    /// What is in effect; nothing when it is being made or is gone.
    pub(super) pool: Option<Arc<Pool>>,
    /// Declarations on their way to disk, oldest first; the first may be part of a commit.
    proposals: VecDeque<PoolProposal>,
    /// Its sandboxes that nobody has claimed and nobody has ended.
    pub(super) stock: BTreeSet<SandboxId>,
    /// Those of them that run.
    pub(super) ready: BTreeSet<SandboxId>,
    pub(super) hits: u64,
    pub(super) replaced: u64,
    pub(super) misses: u64,
    pub(super) trouble: Option<String>,
    /// Sandboxes in a row that could not be made or kept.
    pub(super) failures: u32,
    pub(super) retry_at: Option<Timestamp>,
}

struct PoolProposal {
    /// Nothing: forget the pool.
    next: Option<Arc<Pool>>,
    reply: Reply<()>,
    sent: bool,
}

impl PoolRecord {
    pub(super) fn declared(pool: Pool) -> Self {
        Self { pool: Some(Arc::new(pool)), ..Self::default() }
    }

    pub(super) fn size(&self) -> usize {
        self.pool.as_ref().map_or(0, |pool| pool.size)
    }
}

impl Actor {
    pub(super) fn set_pool(&mut self, name: String, next: Option<Box<Pool>>, reply: Reply<()>) {
        let declared = self.pools.values().filter(|record| record.pool.is_some()).count();
        if next.is_some() && !self.pools.contains_key(&name) && declared >= POOLS_MAX {
            let message = format!("there are {POOLS_MAX} pools already; remove one first");
            let _caller_gone = reply.send(Err(Error::new(ErrorKind::Exhausted, message)));
            return;
        }
        let record = self.pools.entry(name.clone()).or_default();
        let next = next.map(Arc::from);
        record.proposals.push_back(PoolProposal { next, reply, sent: false });
        self.ledger.mark_urgent(Key::Pool(name));
    }

    /// The pool as the next commit writes it.
    pub(super) fn pool_change(&mut self, name: &str) -> Option<Change> {
        let record = self.pools.get_mut(name)?;
        let next = match record.proposals.front_mut() {
            Some(proposal) => {
                proposal.sent = true;
                proposal.next.as_ref()
            }
            None => record.pool.as_ref(),
        };
        Some(match next {
            Some(pool) => Change::PutPool(Box::new(Pool::clone(pool))),
            None => Change::DropPool(name.to_owned()),
        })
    }

    pub(super) fn pool_committed(&mut self, name: &str, result: &Result<()>) {
        let Some(record) = self.pools.get_mut(name) else { return };
        let sent = record.proposals.front().is_some_and(|proposal| proposal.sent);
        if sent && let Some(proposal) = record.proposals.pop_front() {
            if result.is_ok() {
                record.pool = proposal.next;
                (record.trouble, record.failures, record.retry_at) = (None, 0, None);
            }
            let _caller_gone = proposal.reply.send(result.clone());
        }
        if !record.proposals.is_empty() {
            self.ledger.mark_urgent(Key::Pool(name.to_owned()));
        }
        self.tend = true;
        self.refuse_hopeless();
    }

    /// Forgets pools of which nothing is left.
    pub(super) fn forget_pools(&mut self) {
        let ledger = &self.ledger;
        self.pools.retain(|name, record| {
            record.pool.is_some()
                || !record.proposals.is_empty()
                || !record.stock.is_empty()
                || ledger.is_unsaved(&Key::Pool(name.clone()))
        });
    }

    pub(super) fn pool_statuses(&self) -> Vec<PoolStatus> {
        let status = |(name, record): (&String, &super::PoolRecord)| {
            Some(PoolStatus {
                pool: record.pool.clone()?,
                ready: record.ready.len(),
                starting: record.stock.len() - record.ready.len(),
                waiting: self.waiters.count(name),
                hits: record.hits,
                replaced: record.replaced,
                misses: record.misses,
                trouble: record.trouble.clone(),
            })
        };
        self.pools.iter().filter_map(status).collect()
    }
}
