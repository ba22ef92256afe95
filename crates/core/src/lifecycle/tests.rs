//! The product of all wishes and phases: this table is the specification.

use std::time::Duration;

use super::{
    Action, Aging, Deadline, Desired, Exit, Expiry, Failure, Keep, Lifecycle, Observed, Phase, Wish,
};
use crate::diagnostic::Diagnostic;
use crate::time::Timestamp;

const NOW: Timestamp = Timestamp::from_micros(1_000_000);
const WISHES: [Wish; 4] =
    [Wish::Pause(Keep::Memory), Wish::Pause(Keep::Files), Wish::Resume, Wish::Kill];

/// A runtime that always does as told.
fn obey(life: &mut Lifecycle, action: Action) {
    life.began(action, NOW);
    let seen = match action {
        Action::Create | Action::Resume => Observed::Running,
        Action::Pause => Observed::Paused,
        Action::Remove => Observed::Absent,
    };
    life.observe(&seen, NOW);
}

/// A record in `phase`, reached the ordinary way.
fn at(phase: Phase) -> Lifecycle {
    let mut life = Lifecycle::new(NOW, None);
    let start = |life: &mut Lifecycle| obey(life, Action::Create);
    match phase {
        Phase::Queued => {}
        Phase::Starting => life.began(Action::Create, NOW),
        Phase::Running => start(&mut life),
        Phase::Pausing | Phase::Paused | Phase::Resuming => {
            start(&mut life);
            life.request(Wish::Pause(Keep::Memory), NOW).unwrap();
            if phase != Phase::Pausing {
                obey(&mut life, Action::Pause);
            }
            if phase == Phase::Resuming {
                life.request(Wish::Resume, NOW).unwrap();
            }
        }
        Phase::Stopping => {
            start(&mut life);
            life.request(Wish::Kill, NOW).unwrap();
        }
        Phase::Ended | Phase::Failed => {
            start(&mut life);
            let code = i32::from(phase == Phase::Failed);
            let exit = Exit { code, out_of_memory: false, message: String::new() };
            life.observe(&Observed::Exited(exit), NOW);
        }
        Phase::Gone => life.request(Wish::Kill, NOW).unwrap(),
    }
    assert_eq!(life.phase(), phase);
    life
}

fn settle(life: &mut Lifecycle) -> usize {
    let mut actions = 0;
    while let Some(action) = life.plan() {
        obey(life, action);
        actions += 1;
        assert!(actions <= 3, "must settle in three actions: {life:?}");
    }
    actions
}

#[test]
fn every_wish_in_every_phase_settles_where_it_should() {
    for phase in Phase::ALL {
        for wish in WISHES {
            let mut life = at(phase);
            let answer = life.request(wish, NOW);
            settle(&mut life);
            let expected = match (wish, phase) {
                (Wish::Kill, _) | (_, Phase::Gone | Phase::Stopping) => Phase::Gone,
                (_, Phase::Ended | Phase::Failed) => phase,
                (Wish::Pause(_), Phase::Running) | (_, Phase::Pausing) => Phase::Paused,
                (Wish::Pause(_), Phase::Paused) => Phase::Paused,
                _ => Phase::Running,
            };
            assert_eq!(life.phase(), expected, "{wish:?} at {phase:?}: {answer:?}");
            let allowed = match wish {
                Wish::Kill => true,
                Wish::Pause(_) => phase == Phase::Running,
                Wish::Resume => phase == Phase::Paused,
            };
            assert_eq!(answer.is_ok(), allowed, "{wish:?} at {phase:?}");
        }
    }
}

#[test]
fn killing_wins_over_everything_and_twice_is_fine() {
    for phase in Phase::ALL {
        let mut life = at(phase);
        life.request(Wish::Kill, NOW).unwrap();
        life.request(Wish::Kill, NOW).unwrap();
        assert!(life.request(Wish::Pause(Keep::Memory), NOW).is_err());
        settle(&mut life);
        assert!(life.is_over(), "{phase:?}");
    }
}

#[test]
fn an_observation_never_revives_the_dead_and_never_leaks() {
    let exit = Exit { code: 137, out_of_memory: true, message: String::new() };
    for phase in Phase::ALL {
        for seen in
            [Observed::Absent, Observed::Running, Observed::Paused, Observed::Exited(exit.clone())]
        {
            let mut life = at(phase);
            life.observe(&seen, NOW);
            if matches!(phase, Phase::Ended | Phase::Failed | Phase::Gone | Phase::Stopping) {
                let over = matches!(
                    life.phase(),
                    Phase::Ended | Phase::Failed | Phase::Gone | Phase::Stopping
                );
                assert!(over, "{phase:?} + {seen:?} became {:?}", life.phase());
                let holds = seen != Observed::Absent;
                assert_eq!(life.plan() == Some(Action::Remove), holds, "{phase:?} + {seen:?}");
            }
            settle(&mut life);
        }
    }
}

#[test]
fn an_entrypoint_that_never_ran_is_told_from_one_that_failed() {
    let refused = "atoll-agent: the entrypoint cannot be started: nothing: no such file";
    for (phase, code, message, reason) in [
        (Phase::Starting, 127, refused, "ENTRYPOINT_NOT_STARTED"),
        (Phase::Starting, 126, refused, "ENTRYPOINT_NOT_STARTED"),
        (Phase::Starting, 3, refused, "ENTRYPOINT_EXITED"),
        (Phase::Starting, 127, "sh: nothing: not found", "ENTRYPOINT_EXITED"),
        (Phase::Starting, 127, "", "ENTRYPOINT_EXITED"),
        (Phase::Running, 127, refused, "ENTRYPOINT_EXITED"),
    ] {
        let mut life = at(phase);
        let exit = Exit { code, out_of_memory: false, message: message.to_owned() };
        life.observe(&Observed::Exited(exit), NOW);
        let diagnostic = life.diagnostic().unwrap();
        assert_eq!(diagnostic.reason, reason, "{phase:?} {code} {message}");
        assert_eq!((life.phase(), life.plan()), (Phase::Failed, Some(Action::Remove)));
    }
}

#[test]
fn a_deadline_is_a_wish_made_by_the_clock() {
    let pause = Expiry::Pause(Keep::Files);
    for (then, phase) in [(Expiry::Kill, Phase::Gone), (pause, Phase::Paused)] {
        let mut life = at(Phase::Running);
        life.set_deadline(Some(Deadline { at: NOW, then }), NOW);
        assert!(!life.tick(Timestamp::from_micros(999_999)));
        assert!(life.tick(NOW));
        assert!(!life.tick(NOW), "a deadline passes once");
        settle(&mut life);
        assert_eq!(life.phase(), phase);
    }
}

#[test]
fn a_pause_that_fails_for_good_leaves_a_running_sandbox() {
    let mut life = at(Phase::Pausing);
    let diagnostic = Diagnostic::new("PAUSE_FAILED", "no", "try");
    life.failed(Action::Pause, Failure { diagnostic: diagnostic.clone(), transient: false }, NOW);
    assert_eq!((life.desired(), life.phase()), (Desired::Running, Phase::Running));
    assert_eq!(life.diagnostic(), Some(&diagnostic));
}

#[test]
fn transient_failures_are_repeated_with_growing_pauses_and_end() {
    let mut life = at(Phase::Starting);
    let failure = Failure { diagnostic: Diagnostic::new("BUSY", "busy", "wait"), transient: true };
    let mut last = NOW;
    let mut tries = 0;
    while life.phase() == Phase::Starting {
        life.failed(Action::Create, failure.clone(), NOW);
        tries += 1;
        if let Some(next) = life.retry_at() {
            assert!(next > last, "pauses grow");
            last = next;
        }
    }
    assert_eq!((tries, life.phase()), (super::ATTEMPTS_MAX, Phase::Failed));
    assert_eq!(life.plan(), Some(Action::Remove), "what a failed creation left is removed");
}

#[test]
fn removal_is_tried_for_ever() {
    let mut life = at(Phase::Stopping);
    let failure = Failure { diagnostic: Diagnostic::new("BUSY", "busy", "wait"), transient: false };
    for _ in 0..100 {
        life.failed(Action::Remove, failure.clone(), NOW);
        assert_eq!(life.plan(), Some(Action::Remove));
    }
}

#[test]
fn parts_make_the_same_record_again() {
    for phase in Phase::ALL {
        let life = at(phase);
        assert_eq!(Lifecycle::from_parts(life.to_parts()), life);
    }
}

#[test]
fn a_pause_keeps_what_was_asked_for_last() {
    for keep in [Keep::Memory, Keep::Files] {
        let mut life = at(Phase::Running);
        life.request(Wish::Pause(keep), NOW).unwrap();
        settle(&mut life);
        assert_eq!((life.phase(), life.keep()), (Phase::Paused, keep));
        let other = if keep == Keep::Memory { Keep::Files } else { Keep::Memory };
        // Its time is up while it is paused: how it was paused stays true.
        life.set_deadline(Some(Deadline { at: NOW, then: Expiry::Pause(other) }), NOW);
        life.tick(NOW);
        assert_eq!(life.keep(), keep);
        life.request(Wish::Resume, NOW).unwrap();
        settle(&mut life);
        life.set_deadline(Some(Deadline { at: NOW, then: Expiry::Pause(other) }), NOW);
        life.tick(NOW);
        assert_eq!(life.keep(), other);
    }
}

#[test]
fn extending_never_shortens_and_never_invents_a_deadline() {
    let at = Timestamp::from_micros;
    let deadline = |micros| Deadline { at: at(micros), then: Expiry::Kill };
    for (present, wanted, expected) in [
        (None, 5, None),
        (Some(deadline(4)), 5, Some(deadline(5))),
        (Some(deadline(6)), 5, Some(deadline(6))),
        (Some(deadline(5)), 5, Some(deadline(5))),
    ] {
        let mut life = Lifecycle::new(NOW, present);
        life.extend(deadline(wanted), NOW);
        assert_eq!(life.deadline(), expected, "{present:?}");
    }
}

#[test]
fn waking_resumes_what_is_paused_and_nothing_else() {
    let until = Timestamp::from_micros(9_000_000);
    for phase in Phase::ALL {
        let mut life = at(phase);
        let answer = life.wake(until, NOW);
        let allowed = matches!(phase, Phase::Running | Phase::Resuming | Phase::Paused);
        assert_eq!(answer.is_ok(), allowed, "{phase:?}");
        if allowed {
            settle(&mut life);
            assert_eq!(life.phase(), Phase::Running);
            assert_eq!(life.deadline(), None, "one without a deadline gets none");
        }
    }
}

#[test]
fn waking_brings_back_the_deadline_that_put_it_to_sleep() {
    let then = Expiry::Pause(Keep::Files);
    let until = Timestamp::from_micros(9_000_000);
    let mut life = at(Phase::Running);
    life.set_deadline(Some(Deadline { at: NOW, then }), NOW);
    life.tick(NOW);
    settle(&mut life);
    assert_eq!((life.phase(), life.deadline(), life.expiry()), (Phase::Paused, None, Some(then)));
    life.wake(until, NOW).unwrap();
    assert_eq!(life.deadline(), Some(Deadline { at: until, then }));
    let before = life.clone();
    life.wake(Timestamp::from_micros(99_000_000), NOW).unwrap();
    assert_eq!(life, before, "who comes second changes nothing");
}

/// One that runs and would end `seconds` after `NOW`.
fn ending_in(seconds: u64, then: Expiry) -> Lifecycle {
    let mut life = Lifecycle::new(NOW, Some(Deadline { at: later(seconds), then }));
    settle(&mut life);
    life
}

fn later(seconds: u64) -> Timestamp {
    NOW.saturating_add(Duration::from_secs(seconds))
}

#[test]
fn a_pause_that_stops_aging_survives_the_deadline_and_the_lifetime_comes_back() {
    let then = Expiry::Kill;
    for until in [None, Some(Deadline { at: later(5000), then: Expiry::Kill })] {
        let mut life = ending_in(60, then);
        life.pause(Keep::Memory, Aging::Stops(until), NOW).unwrap();
        assert!(!life.tick(later(61)), "it doesn't end while it is being paused");
        settle(&mut life);
        assert_eq!((life.phase(), life.deadline()), (Phase::Paused, until));
        life.resume(None, later(1000)).unwrap();
        assert_eq!(life.deadline(), Some(Deadline { at: later(1060), then }));
    }
}

#[test]
fn the_deadline_of_a_pause_ends_the_pause_and_can_be_moved_without_touching_the_life() {
    let mut life = ending_in(60, Expiry::Pause(Keep::Files));
    let kept = |seconds| Some(Deadline { at: later(seconds), then: Expiry::Kill });
    life.pause(Keep::Memory, Aging::Stops(kept(100)), NOW).unwrap();
    settle(&mut life);
    life.set_deadline(kept(200), NOW);
    assert_eq!(life.expiry(), Some(Expiry::Pause(Keep::Files)));
    assert_eq!(life.lifetime(), Some(Duration::from_secs(60)));
    let mut ended = life.clone();
    assert!(ended.tick(later(200)));
    assert_eq!(ended.desired(), Desired::Gone);
    life.resume(None, later(150)).unwrap();
    let then = Expiry::Pause(Keep::Files);
    assert_eq!(life.deadline(), Some(Deadline { at: later(210), then }));
}

#[test]
fn a_resumption_sets_the_end_it_was_asked_for_and_never_shortens_a_standing_one() {
    let until = |seconds| Some(Deadline { at: later(seconds), then: Expiry::Kill });
    for (aging, asked, expected) in [
        (Aging::Stops(None), until(30), until(30)),
        (Aging::Stops(until(900)), until(30), until(30)),
        (Aging::GoesOn, until(30), until(60)),
        (Aging::GoesOn, until(90), until(90)),
        (Aging::GoesOn, None, until(60)),
    ] {
        let mut life = ending_in(60, Expiry::Kill);
        life.pause(Keep::Memory, aging, NOW).unwrap();
        settle(&mut life);
        life.resume(asked, NOW).unwrap();
        assert_eq!(life.deadline(), expected, "{aging:?} {asked:?}");
    }
}

#[test]
fn what_expired_into_a_pause_has_its_lifetime_again_after_it() {
    let then = Expiry::Pause(Keep::Memory);
    let mut life = ending_in(60, then);
    assert!(life.tick(later(60)));
    settle(&mut life);
    assert_eq!((life.phase(), life.deadline()), (Phase::Paused, None));
    life.request(Wish::Resume, later(100)).unwrap();
    assert_eq!(life.deadline(), Some(Deadline { at: later(160), then }));
    // Ended by hand at once: that is no lifetime.
    settle(&mut life);
    life.set_deadline(Some(Deadline { at: later(110), then }), later(110));
    assert_eq!(life.lifetime(), Some(Duration::from_secs(60)));
}

#[test]
fn what_has_no_end_has_none_after_a_pause_either() {
    let mut life = at(Phase::Running);
    let kept = Deadline { at: later(9), then: Expiry::Kill };
    life.pause(Keep::Memory, Aging::Stops(Some(kept)), NOW).unwrap();
    settle(&mut life);
    life.resume(None, NOW).unwrap();
    assert_eq!(life.deadline(), None);
}

#[test]
fn a_pause_that_fails_gives_the_lifetime_back() {
    let mut life = ending_in(60, Expiry::Kill);
    life.pause(Keep::Memory, Aging::Stops(None), NOW).unwrap();
    life.began(Action::Pause, NOW);
    let diagnostic = Diagnostic::new("NO", "no", "wait");
    life.failed(Action::Pause, Failure { diagnostic, transient: false }, later(5));
    assert_eq!(life.phase(), Phase::Running);
    assert_eq!(life.deadline(), Some(Deadline { at: later(65), then: Expiry::Kill }));
}
