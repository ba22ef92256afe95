//! Group commit: all that differs from the disk is written at once, then its callers are answered.

use std::sync::Arc;

use atoll_core::{Desired, Error, Result, Sandbox, SandboxId, Wish};

use super::Actor;
use super::jobs::Done;
use super::ledger::Key;
use super::record::Deferred;
use crate::counters::count;
use crate::seam::{Change, StoreError};

impl Actor {
    /// Begins the next commit if one is due.
    pub(super) fn commit(&mut self) {
        let Some(keys) = self.ledger.begin() else { return };
        let changes: Vec<_> = keys.iter().filter_map(|key| self.change(key)).collect();
        let store = self.store.clone();
        let lost = StoreError { doing: "writing records", cause: "the writer panicked".into() };
        self.jobs.spawn(Done::Committed(Err(lost)), async move {
            Done::Committed(store.commit(changes).await)
        });
    }

    fn change(&mut self, key: &Key) -> Option<Change> {
        match key {
            Key::Sandbox(id) => {
                let record = self.sandboxes.get_mut(id)?;
                Some(match &mut record.proposal {
                    Some(proposal) => {
                        proposal.sent = true;
                        put_or_drop(&proposal.next)
                    }
                    None => put_or_drop(&record.sandbox),
                })
            }
            Key::Pool(name) => self.pool_change(name),
            Key::Snapshot(id) => {
                let record = self.snapshots.get_mut(id)?;
                Some(match &mut record.proposal {
                    Some(proposal) => {
                        proposal.sent = true;
                        Change::PutSnapshot(Box::new(proposal.next.clone()))
                    }
                    None if record.gone => Change::DropSnapshot(id.clone()),
                    None => Change::PutSnapshot(Box::new((*record.snapshot).clone())),
                })
            }
        }
    }

    pub(super) fn committed(&mut self, result: Result<(), StoreError>) {
        let keys = self.ledger.end(result.is_ok());
        match &result {
            Ok(()) => {
                count(&self.counters.commits, 1);
                count(&self.counters.changes, keys.len());
            }
            Err(error) => {
                count(&self.counters.commit_failures, 1);
                tracing::error!(%error, records = keys.len(), "records can't be written");
            }
        }
        let result = result.map_err(|error| {
            Error::unavailable(format!("records can't be written: {error}; try again later"))
        });
        for key in keys {
            match key {
                Key::Sandbox(id) => self.sandbox_committed(&id, &result),
                Key::Snapshot(id) => self.snapshot_committed(&id, &result),
                Key::Pool(name) => self.pool_committed(&name, &result),
            }
        }
    }

    fn sandbox_committed(&mut self, id: &SandboxId, result: &Result<()>) {
        self.decide(id, result);
        self.take_backlog(id);
        let Some(record) = self.sandboxes.get(id) else { return };
        self.tend |= record.sandbox.stock_of.is_some();
        let settled = result.is_ok() && !self.ledger.is_dirty(&Key::Sandbox(id.clone()));
        let idle = record.proposal.is_none() && record.work.is_none();
        if settled && idle && record.snapshots.is_empty() && record.sandbox.life.is_over() {
            self.forget(id);
            return;
        }
        self.advance(id);
    }

    /// The proposal that was part of the commit, if any, becomes the record or is dropped.
    fn decide(&mut self, id: &SandboxId, result: &Result<()>) {
        let Some(record) = self.sandboxes.get_mut(id) else { return };
        let Some(proposal) = record.proposal.take_if(|proposal| proposal.sent) else { return };
        let created = !record.accepted;
        let counts = proposal.next.stock_of.is_none();
        let answer = match result {
            Ok(()) => {
                record.accepted = true;
                let ends = record.is_alive() && proposal.next.life.desired() == Desired::Gone;
                count(&self.counters.creates, usize::from(created && counts));
                count(&self.counters.kills, usize::from(ends && counts));
                self.put(id, proposal.next);
                self.sandboxes.get(id).map(|record| Arc::clone(&record.sandbox))
            }
            Err(_) if created => {
                // Nobody was told of it: what the runtime has begun is removed, unseen.
                let mut next = proposal.next;
                let now = self.now();
                next.life.request(Wish::Kill, now).expect("killing is always allowed");
                let pool = next.stock_of.clone();
                self.put(id, next);
                if let (Some(pool), Err(error)) = (pool, result) {
                    self.stock_failed(&pool, error.message());
                }
                None
            }
            // The failed commit may have reached the disk: the record stays marked, so that the
            // old version is written again.
            Err(_) => None,
        };
        let Some(reply) = proposal.reply else { return };
        let answer = match (answer, result) {
            (Some(sandbox), Ok(())) => Ok(sandbox),
            (_, Err(error)) => Err(error.clone()),
            (None, Ok(())) => Err(Error::not_found(format_args!("sandbox {id}"))),
        };
        let _caller_gone = reply.send(answer);
    }

    fn take_backlog(&mut self, id: &SandboxId) {
        while let Some(record) = self.sandboxes.get_mut(id) {
            if record.proposal.is_some() {
                return;
            }
            match record.backlog.pop_front() {
                Some(Deferred::Edit(edit, reply)) => self.edit(id, edit, reply),
                Some(Deferred::Outcome(action, outcome)) => self.outcome(id, action, outcome),
                Some(Deferred::Seen(seen)) => self.observe(id, &seen),
                None => return,
            }
        }
    }

    fn forget(&mut self, id: &SandboxId) {
        self.sweep = true;
        if let Some(at) = self.sandboxes.remove(id).and_then(|record| record.timer) {
            self.timers.remove(&(at, id.clone()));
        }
    }
}

fn put_or_drop(sandbox: &Sandbox) -> Change {
    if sandbox.life.is_over() {
        return Change::DropSandbox(sandbox.id.clone());
    }
    Change::PutSandbox(Box::new(sandbox.clone()))
}
