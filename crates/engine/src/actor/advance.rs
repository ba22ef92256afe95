//! What next for one sandbox, and what came of it.

use std::time::Duration;

use atoll_core::lifecycle::Failure;
use atoll_core::{
    Action, Desired, Diagnostic, Lifecycle, Observed, Phase, Sandbox, SandboxId, Source, Timestamp,
};
use tokio::sync::oneshot;

use super::jobs::{Done, Outcome, panicked};
use super::lanes::Lane;
use super::ledger::Key;
use super::record::{Deferred, Record, Work, WorkKind};
use super::{Actor, Edit};
use crate::counters::count;
use crate::seam::RuntimeError;

/// No pause between tries is this long; one that seems longer means that the clock was set back.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(60);
/// What is kept in memory of the output of a sandbox that ended by itself.
const LAST_LOG_BYTES_MAX: usize = 64 * 1024;
/// Longest line a runtime may add to a timeline.
const NOTE_CHARS_MAX: usize = 500;

fn is_retry_due(life: &Lifecycle, now: Timestamp) -> bool {
    life.retry_at().is_none_or(|at| at <= now || now.until(at) > RETRY_WAIT_MAX)
}

impl Actor {
    pub(super) fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        let first = self.timers.first().map(|(at, _)| *at);
        first.into_iter().chain(self.next_stock_timer()).min()
    }

    pub(super) fn time_passed(&mut self) {
        let now = self.now();
        self.stock_time_passed();
        while let Some((at, id)) = self.timers.first().cloned().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id.clone()));
            if let Some(record) = self.sandboxes.get_mut(&id) {
                record.timer = None;
            }
            self.advance(&id);
        }
    }

    /// Does whatever is next for `id`. Harmless to call at any time.
    pub(super) fn advance(&mut self, id: &SandboxId) {
        let now = self.now();
        self.set_timer(id, now);
        self.drop_vain_snapshots(id);
        let Some(record) = self.sandboxes.get_mut(id) else { return };
        let life = &record.sandbox.life;
        let key = Key::Sandbox(id.clone());
        let unsaved = self.ledger.is_unsaved(&key);
        if record.is_visible() && life.deadline().is_some_and(|d| d.at <= now) && !unsaved {
            self.edit(id, Edit::Expire, None);
            return;
        }
        if record.abandoned && record.is_alive() && !record.is_undecided() && !unsaved {
            self.edit(id, Edit::Kill, None);
            return;
        }
        if let Some(work) = &mut record.work {
            if life.desired() == Desired::Gone
                && let Some(cancel) = work.cancel.take()
            {
                let _already_done = cancel.send(());
            }
            return;
        }
        // A creation starts while its record is being written; all else waits for the decision.
        let undecided = record.proposal.is_some() && record.accepted;
        if undecided || !record.backlog.is_empty() || self.stopping.is_some() {
            return;
        }
        let kind = match (record.snapshots.front(), life.plan()) {
            (Some(snapshot), _) => WorkKind::Keep(snapshot.clone()),
            (None, _) if life.is_over() => {
                self.ledger.mark(key);
                return;
            }
            // The wish must be durable first, unless nobody was ever told of the sandbox.
            (None, Some(Action::Remove)) if unsaved && record.accepted => return,
            (None, Some(action)) if is_retry_due(life, now) => WorkKind::Act(action),
            (None, _) => {
                self.follow_hint(id);
                return;
            }
        };
        let lane = record.lane(&kind);
        if self.lanes.enter(lane, id) {
            self.begin(id, kind, lane, now);
        }
    }

    fn set_timer(&mut self, id: &SandboxId, now: Timestamp) {
        let Some(record) = self.sandboxes.get_mut(id) else { return };
        let life = &record.sandbox.life;
        let deadline = life.deadline().filter(|_| record.is_visible()).map(|d| d.at);
        let retry = life.retry_at().filter(|_| record.work.is_none());
        // What is due already is acted upon now, or when the commit or action in its way ends.
        let next = deadline.into_iter().chain(retry).filter(|at| *at > now).min();
        if record.timer == next {
            return;
        }
        if let Some(at) = std::mem::replace(&mut record.timer, next) {
            self.timers.remove(&(at, id.clone()));
        }
        if let Some(at) = next {
            self.timers.insert((at, id.clone()));
        }
    }

    fn begin(&mut self, id: &SandboxId, kind: WorkKind, lane: Lane, now: Timestamp) {
        let epoch = self.next_epoch();
        if let WorkKind::Act(action) = &kind {
            self.learn(id, |life| life.began(*action, now));
        }
        let Some(record) = self.sandboxes.get_mut(id) else { return };
        record.touched = epoch;
        let (cancel, cancelled) = oneshot::channel();
        let cancel = (kind == WorkKind::Act(Action::Create)).then_some(cancel);
        record.work = Some(Work { kind: kind.clone(), lane, cancel });
        count(&self.counters.in_flight, 1);
        let (runtime, id) = (self.runtime.clone(), id.clone());
        match kind {
            WorkKind::Keep(snapshot) => {
                let failed = Done::Kept(id.clone(), snapshot.clone(), Err(panicked()));
                self.jobs.spawn(failed, async move {
                    let result = runtime.snapshot(&id, &snapshot).await;
                    Done::Kept(id, snapshot, result)
                });
            }
            WorkKind::Act(action) => {
                let sandbox = with_credentials(record);
                let view = self.view.clone();
                let failed = Done::Worked(id.clone(), Outcome::Told(Err(panicked())));
                self.jobs.spawn(failed, async move {
                    let cleans_up =
                        action == Action::Remove && sandbox.life.desired() != Desired::Gone;
                    if cleans_up && let Ok(log) = runtime.logs(&id, LAST_LOG_BYTES_MAX).await {
                        view.keep_log(&id, log);
                    }
                    let outcome = tokio::select! {
                        biased;
                        Ok(()) = cancelled => Outcome::Cancelled,
                        told = runtime.apply(&sandbox, action) => Outcome::Told(told),
                    };
                    Done::Worked(id, outcome)
                });
            }
        }
    }

    /// Frees what the work on `id` occupied.
    pub(super) fn end_work(&mut self, id: &SandboxId) -> Option<WorkKind> {
        let epoch = self.next_epoch();
        let record = self.sandboxes.get_mut(id)?;
        let work = record.work.take()?;
        record.touched = epoch;
        self.lanes.leave(work.lane);
        self.counters.in_flight.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        Some(work.kind)
    }

    pub(super) fn worked(&mut self, id: &SandboxId, outcome: Outcome) {
        let Some(WorkKind::Act(action)) = self.end_work(id) else { return };
        let Some(record) = self.sandboxes.get_mut(id) else { return };
        if record.proposal.is_some() {
            record.backlog.push_back(Deferred::Outcome(action, outcome));
            return;
        }
        self.outcome(id, action, outcome);
        self.advance(id);
    }

    pub(super) fn outcome(&mut self, id: &SandboxId, action: Action, outcome: Outcome) {
        let now = self.now();
        let interrupted = self.sandboxes.get(id).is_some_and(|record| record.interrupted);
        match outcome {
            Outcome::Cancelled => {}
            Outcome::Told(Ok(seen)) => self.learn(id, |life| {
                life.observe(&seen, now);
                // Without this a runtime that does nothing would be asked again without a pause.
                if life.plan() == Some(action) {
                    life.failed(action, unchanged(action, &seen), now);
                }
            }),
            Outcome::Told(Err(RuntimeError(failure))) => self.learn(id, |life| {
                // Meanwhile it may have ended by itself or been removed: then the failure of this
                // action is no news.
                if life.plan() == Some(action) {
                    life.failed(action, explained(failure, action, interrupted), now);
                }
            }),
        }
    }

    /// A fact: shown at once, written with the next commit.
    pub(super) fn learn(&mut self, id: &SandboxId, change: impl FnOnce(&mut Lifecycle)) {
        let Some(record) = self.sandboxes.get_mut(id) else { return };
        let mut next = Sandbox::clone(&record.sandbox);
        change(&mut next.life);
        if next.life == record.sandbox.life {
            return;
        }
        let phase = next.life.phase();
        let fails = phase == Phase::Failed && record.sandbox.life.phase() != Phase::Failed;
        count(&self.counters.failures, usize::from(fails && next.stock_of.is_none()));
        let claimed =
            record.claimed_since.take_if(|_| !matches!(phase, Phase::Queued | Phase::Starting));
        if !matches!(phase, Phase::Queued | Phase::Starting) {
            record.auth = None;
            record.interrupted = false;
        }
        self.put(id, next);
        self.ledger.mark(Key::Sandbox(id.clone()));
        if let Some(since) = claimed.filter(|_| phase == Phase::Running) {
            self.claim_done(since);
        }
    }

    pub(super) fn observe(&mut self, id: &SandboxId, seen: &Observed) {
        let now = self.now();
        self.learn(id, |life| life.observe(seen, now));
    }

    /// A line for the story; not worth a commit of its own.
    pub(super) fn note(&mut self, id: &SandboxId, message: &str) {
        let now = self.now();
        let Some(record) = self.sandboxes.get(id) else { return };
        if record.proposal.is_some() && record.accepted {
            return;
        }
        let message: String = message.chars().take(NOTE_CHARS_MAX).collect();
        let mut next = Sandbox::clone(&record.sandbox);
        next.life.note(now, &message);
        self.put(id, next);
    }
}

fn with_credentials(record: &Record) -> Sandbox {
    let mut sandbox = Sandbox::clone(&record.sandbox);
    if let Source::Image(image) = &mut sandbox.spec.source {
        image.auth = record.auth.clone();
    }
    sandbox
}

fn unchanged(action: Action, seen: &Observed) -> Failure {
    let message = format!("after {action:?} the sandbox was found to be {seen:?}");
    let diagnostic = Diagnostic::new("ACTION_WITHOUT_EFFECT", &message, "look at the server's log");
    Failure { diagnostic, transient: true }
}

fn explained(mut failure: Failure, action: Action, interrupted: bool) -> Failure {
    if action == Action::Create && interrupted {
        let said = failure.diagnostic;
        let more = format!(
            "{}; the server was restarted meanwhile and does not keep registry credentials: if \
             the image needs them, create the sandbox again",
            said.recommendation
        );
        failure.diagnostic = Diagnostic::new(&said.reason, &said.message, &more);
    }
    failure
}
