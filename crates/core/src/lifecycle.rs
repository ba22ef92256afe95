//! The one state machine.
//!
//! A record holds what is wished (`desired`) and where things stand (`phase`). [`Lifecycle::plan`]
//! answers "what next" from the record alone, so the answer is the same before and after a crash.
//!
//! # Flow
//! `request` (a user) and `tick` (a deadline) move `desired`; `began` writes the transient phase
//! before an action is sent; `observe` and `failed` write what came of it. Nothing else changes a
//! phase.
//!
//! # Guarantees
//! Killing works from every phase and always wins. With a healthy runtime every wish is reached
//! in at most three actions. A transient phase plans its own action again, so an action lost in a
//! crash is repeated; runtimes make every action idempotent.

use std::time::Duration;

use crate::diagnostic::Diagnostic;
use crate::error::{Error, Result};
use crate::time::Timestamp;
use crate::timeline::{Entry, Timeline};

mod transition;

#[cfg(test)]
mod tests;

/// The resting states a user can wish for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Desired {
    /// Commands work.
    Running,
    /// Everything stands still, nothing is lost.
    Paused,
    /// Removed with all it had.
    Gone,
}

/// Where a sandbox stands. Never shown as it is: each door projects it to its own documented
/// states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Accepted, nothing made yet.
    Queued,
    /// Being made; the agent has not answered yet.
    Starting,
    /// The agent answered: a command sent now works.
    Running,
    /// Being frozen.
    Pausing,
    /// Frozen.
    Paused,
    /// Being thawed.
    Resuming,
    /// Being removed.
    Stopping,
    /// Its entrypoint ended by itself, without an error.
    Ended,
    /// It can't be used any more; the diagnostic says why.
    Failed,
    /// Nothing is left of it.
    Gone,
}

impl Phase {
    /// All phases, for tables that must be complete.
    pub const ALL: [Self; 10] = [
        Self::Queued,
        Self::Starting,
        Self::Running,
        Self::Pausing,
        Self::Paused,
        Self::Resuming,
        Self::Stopping,
        Self::Ended,
        Self::Failed,
        Self::Gone,
    ];
}

/// What a pause keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Keep {
    /// Files and memory: processes stand still and go on later.
    #[default]
    Memory,
    /// Files only: processes end, and the sandbox starts anew when it is resumed.
    Files,
}

/// What a user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wish {
    /// Freeze it.
    Pause(Keep),
    /// Thaw it.
    Resume,
    /// Remove it.
    Kill,
}

/// What a runtime is told to do. Each is idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Make it and wait until its agent answers.
    Create,
    /// Freeze it.
    Pause,
    /// Thaw it.
    Resume,
    /// Remove every trace of it.
    Remove,
}

/// What a runtime sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// No trace.
    Absent,
    /// Up, and its agent answered.
    Running,
    /// Frozen.
    Paused,
    /// Its first process ended.
    Exited(Exit),
}

/// How a sandbox's first process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code, or 128 + the signal's number.
    pub code: i32,
    /// The kernel killed for lack of memory.
    pub out_of_memory: bool,
    /// Last words, if it left any.
    pub message: String,
}

/// What happens when the time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// Remove the sandbox.
    Kill,
    /// Pause it.
    Pause(Keep),
}

/// When the time is up and what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// When.
    pub at: Timestamp,
    /// What then.
    pub then: Expiry,
}

/// What becomes of a sandbox's deadline while it is paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aging {
    /// It stands: a paused sandbox ages like any other.
    #[default]
    GoesOn,
    /// It gives way to this one, or to none; once resumed, the sandbox lives as long as it was
    /// meant to before.
    Stops(Option<Deadline>),
}

/// Attempts at an action that keeps failing for reasons that may pass, before giving up on it.
/// Removal never gives up.
pub const ATTEMPTS_MAX: u32 = 5;
/// What a sandbox gets to live whose only deadline was "now".
const LIFETIME_LEAST: Duration = Duration::from_secs(60);

/// An action that didn't work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub diagnostic: Diagnostic,
    /// The same action may work later.
    pub transient: bool,
}

/// Where one sandbox stands and what is wished for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    desired: Desired,
    phase: Phase,
    /// What the present or next pause keeps.
    keep: Keep,
    /// The runtime may hold something for this sandbox.
    holds: bool,
    generation: u64,
    deadline: Option<Deadline>,
    /// What its last deadline said would happen; kept when the deadline has passed or is cleared.
    expiry: Option<Expiry>,
    /// How long its present or last life was meant to be; `None` for one without an end.
    lifetime: Option<Duration>,
    /// The deadline, or that there is none, is about the present pause and not about its life.
    rests: bool,
    changed_at: Timestamp,
    /// Failed tries of the present action in a row.
    attempts: u32,
    retry_at: Option<Timestamp>,
    diagnostic: Option<Diagnostic>,
    timeline: Timeline,
}

/// The members of a [`Lifecycle`] as a store keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each member is documented in Lifecycle")]
pub struct Parts {
    pub desired: Desired,
    pub phase: Phase,
    pub keep: Keep,
    pub holds: bool,
    pub generation: u64,
    pub deadline: Option<Deadline>,
    pub expiry: Option<Expiry>,
    pub lifetime: Option<Duration>,
    pub rests: bool,
    pub changed_at: Timestamp,
    pub attempts: u32,
    pub retry_at: Option<Timestamp>,
    pub diagnostic: Option<Diagnostic>,
    pub timeline: Vec<Entry>,
}

impl Lifecycle {
    /// A sandbox just asked for.
    pub fn new(now: Timestamp, deadline: Option<Deadline>) -> Self {
        let mut life = Self {
            desired: Desired::Running,
            phase: Phase::Queued,
            keep: Keep::Memory,
            holds: false,
            generation: 1,
            deadline,
            expiry: deadline.map(|deadline| deadline.then),
            lifetime: deadline.map(|deadline| now.until(deadline.at)),
            rests: false,
            changed_at: now,
            attempts: 0,
            retry_at: None,
            diagnostic: None,
            timeline: Timeline::default(),
        };
        life.note(now, "accepted");
        life
    }

    /// What is wished.
    pub fn desired(&self) -> Desired {
        self.desired
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What the present or next pause keeps.
    pub fn keep(&self) -> Keep {
        self.keep
    }

    /// Counts every change of this record.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// When its time is up.
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// What its last deadline said would happen, also after that has passed or was cleared; `None`
    /// for a sandbox that never had one.
    pub fn expiry(&self) -> Option<Expiry> {
        self.expiry
    }

    /// How long its life was meant to be when that was said last; `None` for one without an end.
    /// A pause doesn't change it.
    pub fn lifetime(&self) -> Option<Duration> {
        self.lifetime
    }

    /// When the phase last changed.
    pub fn changed_at(&self) -> Timestamp {
        self.changed_at
    }

    /// Why it is not as wished.
    pub fn diagnostic(&self) -> Option<&Diagnostic> {
        self.diagnostic.as_ref()
    }

    /// Its story.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// No earlier than then may the planned action be tried again.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.retry_at
    }

    /// Nothing is left to do, ever: the record may be dropped.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Gone && !self.holds
    }

    /// A user wishes something.
    ///
    /// # Errors
    /// `Conflict` when the phase doesn't allow it; killing is always allowed.
    pub fn request(&mut self, wish: Wish, now: Timestamp) -> Result<()> {
        match wish {
            Wish::Kill => {
                self.end(now, "removal requested");
                Ok(())
            }
            Wish::Pause(keep) => self.pause(keep, Aging::GoesOn, now),
            Wish::Resume => self.resume(None, now),
        }
    }

    /// Pauses it and says in the same breath what becomes of its deadline.
    ///
    /// # Errors
    /// `Conflict` when it doesn't run.
    pub fn pause(&mut self, keep: Keep, aging: Aging, now: Timestamp) -> Result<()> {
        if (self.desired, self.phase) != (Desired::Running, Phase::Running) {
            return Err(self.rejected(Wish::Pause(keep)));
        }
        self.keep = keep;
        if let Aging::Stops(until) = aging {
            (self.deadline, self.rests) = (until, true);
        }
        self.wish(Desired::Paused, now);
        Ok(())
    }

    /// Resumes it, to live until `until` at least. Without that, a life whose deadline its pause
    /// took away gets as much time as it was meant to have; one that had no end has none again.
    ///
    /// # Errors
    /// `Conflict` when it isn't paused.
    pub fn resume(&mut self, until: Option<Deadline>, now: Timestamp) -> Result<()> {
        if (self.desired, self.phase) != (Desired::Paused, Phase::Paused) {
            return Err(self.rejected(Wish::Resume));
        }
        self.wish(Desired::Running, now);
        self.live_on(until, now);
        Ok(())
    }

    /// A pause is over, so that the deadline is about the sandbox's life again.
    fn live_on(&mut self, until: Option<Deadline>, now: Timestamp) {
        if std::mem::take(&mut self.rests) {
            self.deadline = None;
            let former = self.lifetime.zip(self.expiry);
            let former = former.map(|(time, then)| Deadline { at: now.saturating_add(time), then });
            if let Some(next) = until.or(former) {
                self.set_deadline(Some(next), now);
            }
            return;
        }
        if let Some(until) = until.filter(|u| self.deadline.is_none_or(|d| d.at < u.at)) {
            self.set_deadline(Some(until), now);
        }
    }

    /// Moves or clears the deadline.
    pub fn set_deadline(&mut self, deadline: Option<Deadline>, now: Timestamp) {
        self.deadline = deadline;
        self.generation += 1;
        if self.rests {
            return;
        }
        self.expiry = deadline.map(|deadline| deadline.then).or(self.expiry);
        self.lifetime = deadline.map(|deadline| match now.until(deadline.at) {
            // Who ends it at once says nothing about how long it may live another time.
            Duration::ZERO => self.lifetime.unwrap_or(LIFETIME_LEAST),
            time => time,
        });
    }

    /// Moves the deadline to `deadline` if that is later; what has none keeps none.
    pub fn extend(&mut self, deadline: Deadline, now: Timestamp) {
        if self.deadline.is_some_and(|present| present.at < deadline.at) {
            self.set_deadline(Some(deadline), now);
        }
    }

    /// Somebody needs it: what is paused is resumed, and lives until `until` at least. What its
    /// deadline said would happen then happens then, also when that deadline has passed.
    ///
    /// # Errors
    /// `Conflict` when it is neither running nor paused.
    pub fn wake(&mut self, until: Timestamp, now: Timestamp) -> Result<()> {
        if let (Desired::Running, Phase::Running | Phase::Resuming) = (self.desired, self.phase) {
            return Ok(());
        }
        self.resume(self.expiry.map(|then| Deadline { at: until, then }), now)
    }

    /// Says something about the present phase in the story, such as the progress of a pull.
    pub fn note(&mut self, now: Timestamp, message: &str) {
        self.timeline.push(Entry { at: now, phase: self.phase, message: message.to_owned() });
    }

    /// The clock moved: a deadline that passed becomes a wish.
    pub fn tick(&mut self, now: Timestamp) -> bool {
        let Some(deadline) = self.deadline.filter(|d| d.at <= now) else { return false };
        if self.desired == Desired::Gone {
            return false;
        }
        self.deadline = None;
        match (deadline.then, self.phase) {
            (Expiry::Kill, _) | (Expiry::Pause(_), Phase::Failed | Phase::Ended) => {
                self.end(now, "time is up");
            }
            (Expiry::Pause(keep), phase) => {
                // What is paused or being paused already stays as it is.
                if !matches!(phase, Phase::Pausing | Phase::Paused) {
                    self.keep = keep;
                }
                self.rests = true;
                self.wish(Desired::Paused, now);
            }
        }
        true
    }

    /// What next. `None`: at rest.
    pub fn plan(&self) -> Option<Action> {
        use Phase::{
            Ended, Failed, Gone, Paused, Pausing, Queued, Resuming, Running, Starting, Stopping,
        };
        let cleanup = self.holds.then_some(Action::Remove);
        match (self.desired, self.phase) {
            (Desired::Gone, _) | (_, Ended | Failed | Gone | Stopping) => cleanup,
            (Desired::Running | Desired::Paused, Queued | Starting) => Some(Action::Create),
            (Desired::Running, Running) | (Desired::Paused, Paused) => None,
            (Desired::Running | Desired::Paused, Pausing) | (Desired::Paused, Running) => {
                Some(Action::Pause)
            }
            (Desired::Running | Desired::Paused, Resuming) | (Desired::Running, Paused) => {
                Some(Action::Resume)
            }
        }
    }

    /// How long to wait after the `attempts`-th failure in a row: doubling, at most 30 s.
    fn backoff(attempts: u32) -> Duration {
        Duration::from_millis(50 << attempts.min(10)).min(Duration::from_secs(30))
    }

    fn rejected(&self, wish: Wish) -> Error {
        let (verb, needed) = match wish {
            Wish::Pause(_) => ("paused", "running"),
            Wish::Resume => ("resumed", "paused"),
            Wish::Kill => ("killed", "there"),
        };
        let state = match self.phase {
            Phase::Queued | Phase::Starting => "still starting",
            Phase::Running => "running",
            Phase::Pausing => "being paused",
            Phase::Paused => "paused",
            Phase::Resuming => "being resumed",
            Phase::Stopping | Phase::Gone => "being removed",
            Phase::Ended => "over: its entrypoint ended",
            Phase::Failed => "failed",
        };
        Error::conflict(format!(
            "the sandbox is {state}; it can be {verb} only while it is {needed}"
        ))
    }
}
