//! The only code that writes a phase.

use super::{ATTEMPTS_MAX, Action, Desired, Exit, Failure, Lifecycle, Observed, Parts, Phase};
use crate::diagnostic::Diagnostic;
use crate::time::Timestamp;
use crate::timeline::Timeline;

impl Lifecycle {
    /// The engine is about to send `action`; called before it is sent.
    pub fn began(&mut self, action: Action, now: Timestamp) {
        self.retry_at = None;
        match action {
            Action::Create => {
                self.holds = true;
                self.enter(Phase::Starting, now, "starting");
            }
            Action::Pause => self.enter(Phase::Pausing, now, "pausing"),
            Action::Resume => self.enter(Phase::Resuming, now, "resuming"),
            Action::Remove if self.desired == Desired::Gone => {
                self.enter(Phase::Stopping, now, "removing");
            }
            // Cleaning up after a failure: users go on seeing the failure.
            Action::Remove => {}
        }
    }

    /// The runtime told what it sees.
    pub fn observe(&mut self, seen: &Observed, now: Timestamp) {
        use Phase::{
            Ended, Failed, Gone, Paused, Pausing, Queued, Resuming, Running, Starting, Stopping,
        };
        match (self.phase, seen) {
            (Queued, Observed::Absent) => {}
            // The creation never happened, or was rolled back: begin anew.
            (Starting, Observed::Absent) => {
                self.holds = false;
                self.enter(Queued, now, "nothing was made yet");
            }
            (Running | Pausing | Paused | Resuming, Observed::Absent) => {
                self.holds = false;
                self.fail(lost(), now);
            }
            (Stopping, Observed::Absent) => {
                self.holds = false;
                self.enter(Gone, now, "removed");
            }
            (Ended | Failed | Gone, Observed::Absent) => {
                self.holds = false;
                if self.desired == Desired::Gone {
                    self.enter(Gone, now, "removed");
                }
            }
            (Queued | Starting | Resuming, Observed::Running) => {
                self.succeed(Running, now, "running")
            }
            (Running, Observed::Running) => {}
            (Paused, Observed::Running) => self.succeed(Running, now, "found running"),
            (Pausing, Observed::Paused) => self.succeed(Paused, now, "paused"),
            (Pausing, Observed::Running) | (Stopping, Observed::Running | Observed::Paused) => {}
            (Queued | Starting | Running, Observed::Paused) => {
                self.succeed(Paused, now, "found paused")
            }
            (Paused | Resuming, Observed::Paused) => {}
            (Ended | Failed | Gone, Observed::Running | Observed::Paused) => self.holds = true,
            (Queued | Starting | Running | Pausing | Paused | Resuming, Observed::Exited(exit)) => {
                self.holds = true;
                self.exited(exit, now);
            }
            (Stopping | Ended | Failed | Gone, Observed::Exited(_)) => self.holds = true,
        }
    }

    /// `action` didn't work.
    pub fn failed(&mut self, action: Action, failure: Failure, now: Timestamp) {
        self.attempts += 1;
        self.generation += 1;
        let again = failure.transient && self.attempts < ATTEMPTS_MAX;
        if again || action == Action::Remove {
            self.note(now, &format!("{}; trying again", failure.diagnostic.message));
            self.retry_at = Some(now.saturating_add(Self::backoff(self.attempts)));
            self.diagnostic.get_or_insert(failure.diagnostic);
            return;
        }
        match action {
            // The wish can't be met, but nothing is broken: it goes on running.
            Action::Pause if self.desired != Desired::Gone => {
                self.desired = Desired::Running;
                self.succeed(Phase::Running, now, "could not be paused");
                self.live_on(None, now);
                self.diagnostic = Some(failure.diagnostic);
            }
            Action::Create | Action::Pause | Action::Resume | Action::Remove => {
                self.fail(failure.diagnostic, now);
            }
        }
    }

    /// The members, for a store.
    pub fn to_parts(&self) -> Parts {
        Parts {
            desired: self.desired,
            phase: self.phase,
            keep: self.keep,
            holds: self.holds,
            generation: self.generation,
            deadline: self.deadline,
            expiry: self.expiry,
            lifetime: self.lifetime,
            rests: self.rests,
            changed_at: self.changed_at,
            attempts: self.attempts,
            retry_at: self.retry_at,
            diagnostic: self.diagnostic.clone(),
            timeline: self.timeline.entries().to_vec(),
        }
    }

    /// What a store kept.
    pub fn from_parts(parts: Parts) -> Self {
        Self {
            desired: parts.desired,
            phase: parts.phase,
            keep: parts.keep,
            holds: parts.holds,
            generation: parts.generation,
            deadline: parts.deadline,
            expiry: parts.expiry,
            lifetime: parts.lifetime,
            rests: parts.rests,
            changed_at: parts.changed_at,
            attempts: parts.attempts,
            retry_at: parts.retry_at,
            diagnostic: parts.diagnostic,
            timeline: Timeline::from_entries(parts.timeline),
        }
    }

    pub(super) fn wish(&mut self, desired: Desired, now: Timestamp) {
        self.desired = desired;
        self.attempts = 0;
        self.retry_at = None;
        self.generation += 1;
        // Pausing and resuming are visible from the moment they are wished.
        match (desired, self.phase) {
            (Desired::Paused, Phase::Running) => self.enter(Phase::Pausing, now, "pause requested"),
            (Desired::Running, Phase::Paused) => {
                self.enter(Phase::Resuming, now, "resume requested")
            }
            (Desired::Gone, _) | (Desired::Paused | Desired::Running, _) => {}
        }
    }

    pub(super) fn end(&mut self, now: Timestamp, why: &str) {
        if self.desired == Desired::Gone {
            return;
        }
        self.wish(Desired::Gone, now);
        self.deadline = None;
        let next = if self.holds { Phase::Stopping } else { Phase::Gone };
        self.enter(next, now, why);
    }

    fn succeed(&mut self, phase: Phase, now: Timestamp, message: &str) {
        self.attempts = 0;
        self.retry_at = None;
        self.diagnostic = None;
        self.enter(phase, now, message);
    }

    fn fail(&mut self, diagnostic: Diagnostic, now: Timestamp) {
        self.attempts = 0;
        self.retry_at = None;
        let message = diagnostic.message.clone();
        self.diagnostic = Some(diagnostic);
        let phase = if self.desired == Desired::Gone { Phase::Stopping } else { Phase::Failed };
        let phase = if phase == Phase::Stopping && !self.holds { Phase::Gone } else { phase };
        self.enter(phase, now, &message);
    }

    fn exited(&mut self, exit: &Exit, now: Timestamp) {
        if exit.code == 0 && !exit.out_of_memory {
            self.succeed(Phase::Ended, now, "the entrypoint ended");
        } else {
            let has_run = self.phase != Phase::Queued && self.phase != Phase::Starting;
            let not_started = if has_run { None } else { not_started(exit) };
            self.fail(not_started.unwrap_or_else(|| diagnose(exit)), now);
        }
    }

    fn enter(&mut self, phase: Phase, now: Timestamp, message: &str) {
        if self.phase == phase {
            return;
        }
        self.phase = phase;
        self.changed_at = now;
        self.generation += 1;
        self.note(now, message);
    }
}

fn lost() -> Diagnostic {
    Diagnostic::new(
        "SANDBOX_LOST",
        "the sandbox's processes are gone, though nobody ended them",
        "was the machine restarted, or were they killed from outside? Create a new sandbox",
    )
}

/// The agent's own words in the log, which it marks, are the last when it could not execute the
/// entrypoint at all. A program that prints the same and exits so fools only its own user.
fn not_started(exit: &Exit) -> Option<Diagnostic> {
    const MARK: &str = "atoll-agent: ";
    let refused = matches!(exit.code, 126 | 127) && !exit.out_of_memory;
    let said = exit.message.lines().last()?.strip_prefix(MARK).filter(|_| refused)?;
    Some(Diagnostic::new(
        "ENTRYPOINT_NOT_STARTED",
        said,
        "name a program and a user that the image has; the user must be allowed to execute it",
    ))
}

fn diagnose(exit: &Exit) -> Diagnostic {
    let said = if exit.message.is_empty() {
        String::new()
    } else {
        format!("; it said: {}", exit.message)
    };
    if exit.out_of_memory {
        return Diagnostic::new(
            "OUT_OF_MEMORY",
            &format!("the sandbox used all of its memory and was ended by the kernel{said}"),
            "create it with a higher memory limit",
        );
    }
    Diagnostic::new(
        "ENTRYPOINT_EXITED",
        &format!("the entrypoint ended with code {}{said}", exit.code),
        "look at the sandbox's logs; an entrypoint that should stay up must not return",
    )
}
