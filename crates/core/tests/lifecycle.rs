//! Whatever happens to a record, in whatever order, the promises of the lifecycle hold.

use std::time::Duration;

use atoll_core::lifecycle::{ATTEMPTS_MAX, Failure};
use atoll_core::{
    Action, Aging, Deadline, Desired, Diagnostic, Exit, Expiry, Keep, Lifecycle, Observed, Phase,
    Timestamp, Wish,
};
use proptest::prelude::*;

/// Anything that can happen to a record.
#[derive(Clone, Debug)]
enum Happening {
    Wished(Wish),
    Saw(Observed),
    /// The planned action is sent and its outcome is never told: a crash.
    Began,
    /// The planned action is sent and works.
    Worked,
    /// The planned action is sent and fails.
    Failed {
        transient: bool,
    },
    Deadline(Option<(u64, Expiry)>),
    /// Paused, with another deadline or none while it is.
    Rested(Option<(u64, Expiry)>),
    /// Resumed, with another deadline or the former lifetime.
    Woke(Option<(u64, Expiry)>),
    Passed(u64),
    Noted,
}

fn keep() -> impl Strategy<Value = Keep> {
    prop_oneof![Just(Keep::Memory), Just(Keep::Files)]
}

fn wish() -> impl Strategy<Value = Wish> {
    let pause = keep().prop_map(Wish::Pause);
    prop_oneof![pause, Just(Wish::Resume), Just(Wish::Kill)]
}

fn seen() -> impl Strategy<Value = Observed> {
    let exit = (0..3_i32, any::<bool>()).prop_map(|(code, out_of_memory)| {
        Observed::Exited(Exit { code, out_of_memory, message: "bye".to_owned() })
    });
    prop_oneof![Just(Observed::Absent), Just(Observed::Running), Just(Observed::Paused), exit]
}

fn end(now: Timestamp, (seconds, then): (u64, Expiry)) -> Deadline {
    Deadline { at: now.saturating_add(Duration::from_secs(seconds)), then }
}

fn happening() -> impl Strategy<Value = Happening> {
    let wanted = || {
        let expiry = prop_oneof![Just(Expiry::Kill), keep().prop_map(Expiry::Pause)];
        proptest::option::of((0..100_u64, expiry))
    };
    prop_oneof![
        2 => wish().prop_map(Happening::Wished),
        2 => seen().prop_map(Happening::Saw),
        1 => Just(Happening::Began),
        4 => Just(Happening::Worked),
        2 => any::<bool>().prop_map(|transient| Happening::Failed { transient }),
        1 => wanted().prop_map(Happening::Deadline),
        1 => wanted().prop_map(Happening::Rested),
        1 => wanted().prop_map(Happening::Woke),
        2 => (0..60_u64).prop_map(Happening::Passed),
        1 => Just(Happening::Noted),
    ]
}

fn obey(life: &mut Lifecycle, action: Action, now: Timestamp) {
    life.began(action, now);
    let seen = match action {
        Action::Create | Action::Resume => Observed::Running,
        Action::Pause => Observed::Paused,
        Action::Remove => Observed::Absent,
    };
    life.observe(&seen, now);
}

fn fail(life: &mut Lifecycle, action: Action, transient: bool, now: Timestamp) {
    life.began(action, now);
    let diagnostic = Diagnostic::new("NO", "no", "wait");
    life.failed(action, Failure { diagnostic, transient }, now);
}

fn happen(life: &mut Lifecycle, happening: &Happening, now: &mut Timestamp) {
    match (happening, life.plan()) {
        (Happening::Wished(wish), _) => {
            let before = life.clone();
            if life.request(*wish, *now).is_err() {
                assert_eq!(*life, before, "a refused wish changes nothing");
                assert_ne!(*wish, Wish::Kill, "killing is always allowed");
            }
        }
        (Happening::Rested(until), _) => {
            let aging = Aging::Stops(until.map(|wanted| end(*now, wanted)));
            let _refused = life.pause(Keep::Memory, aging, *now);
        }
        (Happening::Woke(until), _) => {
            let _refused = life.resume(until.map(|wanted| end(*now, wanted)), *now);
        }
        (Happening::Saw(seen), _) => life.observe(seen, *now),
        (Happening::Began, Some(action)) => life.began(action, *now),
        (Happening::Worked, Some(action)) => obey(life, action, *now),
        (Happening::Failed { transient }, Some(action)) => fail(life, action, *transient, *now),
        (Happening::Began | Happening::Worked | Happening::Failed { .. }, None) => {}
        (Happening::Deadline(deadline), _) => {
            life.set_deadline(deadline.map(|wanted| end(*now, wanted)), *now);
        }
        (Happening::Passed(seconds), _) => {
            *now = now.saturating_add(Duration::from_secs(*seconds));
            life.tick(*now);
        }
        (Happening::Noted, _) => life.note(*now, "something"),
    }
}

fn live(story: &[Happening]) -> (Lifecycle, Timestamp) {
    let mut now = Timestamp::from_micros(1_000_000);
    let mut life = Lifecycle::new(now, None);
    for happening in story {
        let before = life.clone();
        happen(&mut life, happening, &mut now);
        check_step(&before, &life, happening);
    }
    (life, now)
}

fn check_step(before: &Lifecycle, after: &Lifecycle, happening: &Happening) {
    assert!(after.generation() >= before.generation(), "generations only grow");
    if before.phase() != after.phase() {
        assert!(after.generation() > before.generation(), "{happening:?}: a change is counted");
        let last = after.timeline().entries().last().expect("a timeline is never empty");
        assert_eq!(last.phase, after.phase(), "{happening:?}: a change is told");
    }
    let leaves = matches!(after.phase(), Phase::Stopping | Phase::Gone);
    if matches!(before.phase(), Phase::Ended | Phase::Failed) {
        assert!(leaves || after.phase() == before.phase(), "{happening:?}: the dead came back");
    }
    if before.desired() == Desired::Gone {
        assert_eq!(after.desired(), Desired::Gone, "{happening:?}: an end was taken back");
    }
    let gone = after.desired() == Desired::Gone;
    assert_eq!(gone, leaves, "{happening:?}: {:?} while {:?}", after.phase(), after.desired());
    if after.phase() == Phase::Failed {
        assert!(after.diagnostic().is_some(), "{happening:?}: a failure says why");
    }
    let runs = after.desired() == Desired::Running && after.phase() == Phase::Running;
    if runs && after.lifetime().is_some() {
        assert!(after.deadline().is_some(), "{happening:?}: what had an end runs without one");
    }
    let takes_end_away = matches!(happening, Happening::Deadline(None));
    if before.lifetime().is_some() && !takes_end_away {
        assert!(after.lifetime().is_some(), "{happening:?}: an end was lost");
    }
    assert!(after.timeline().entries().len() <= 64, "timelines are bounded");
}

/// Obeys every plan; a healthy runtime reaches rest in a few actions.
fn settle(life: &mut Lifecycle, now: Timestamp) {
    for _ in 0..3 {
        if let Some(action) = life.plan() {
            obey(life, action, now);
        }
    }
    assert_eq!(life.plan(), None, "no rest after three actions: {life:?}");
}

fn story() -> impl Strategy<Value = Vec<Happening>> {
    prop::collection::vec(happening(), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_story_ends_in_what_was_wished(story in story()) {
        let (mut life, now) = live(&story);
        settle(&mut life, now);
        let fits = match (life.desired(), life.phase()) {
            (Desired::Gone, _) => life.is_over(),
            (Desired::Running, phase) => {
                matches!(phase, Phase::Running | Phase::Ended | Phase::Failed)
            }
            (Desired::Paused, phase) => {
                matches!(phase, Phase::Paused | Phase::Ended | Phase::Failed)
            }
        };
        prop_assert!(fits, "{life:?}");
    }

    #[test]
    fn killing_always_wins(story in story()) {
        let (mut life, now) = live(&story);
        life.request(Wish::Kill, now).unwrap();
        prop_assert!(life.request(Wish::Pause(Keep::Memory), now).is_err());
        prop_assert!(life.request(Wish::Resume, now).is_err());
        settle(&mut life, now);
        prop_assert!(life.is_over(), "{life:?}");
    }

    #[test]
    fn a_crash_changes_no_plan(story in story()) {
        let (life, _) = live(&story);
        let again = Lifecycle::from_parts(life.to_parts());
        prop_assert_eq!(&again, &life);
        prop_assert_eq!(again.plan(), life.plan());
    }

    #[test]
    fn failures_that_may_pass_end_too(story in story()) {
        let (mut life, now) = live(&story);
        for _ in 0..3 * ATTEMPTS_MAX {
            if let Some(action) = life.plan().filter(|action| *action != Action::Remove) {
                fail(&mut life, action, true, now);
            }
        }
        prop_assert!(matches!(life.plan(), None | Some(Action::Remove)), "{life:?}");
    }
}
