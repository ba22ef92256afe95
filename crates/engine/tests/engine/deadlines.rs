//! Time, also across restarts.

use std::time::Duration;

use atoll_control::{Control, Create};
use atoll_core::{Action, Aging, Deadline, ErrorKind, Expiry, Keep, Phase};
use atoll_engine::Clock;
use atoll_testkit::{eventually, sample};

use crate::bench::Bench;

const MINUTE: Duration = Duration::from_secs(60);

fn for_a_minute(on_expiry: Expiry) -> Create {
    Create { lifetime: Some(MINUTE), on_expiry, ..sample::create() }
}

async fn is_gone(bench: &Bench, id: &atoll_core::SandboxId) {
    eventually("it is gone", async || {
        let answer = bench.engine.get(&bench.tenant, id).await;
        answer.err().filter(|error| error.kind() == ErrorKind::NotFound)
    })
    .await;
    bench.machine_holds(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_ends_when_its_time_is_up_and_not_before() {
    let bench = Bench::new().await;
    let id = bench.create_from(for_a_minute(Expiry::Kill)).await.id.clone();
    bench.reaches(&id, Phase::Running).await;
    bench.clock.advance(MINUTE - Duration::from_micros(1));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(bench.phase(&id).await, Phase::Running);
    bench.clock.advance(Duration::from_micros(1));
    is_gone(&bench, &id).await;
}

#[tokio::test(start_paused = true)]
async fn expiry_can_pause_instead() {
    let bench = Bench::new().await;
    let id = bench.create_from(for_a_minute(Expiry::Pause(Keep::Memory))).await.id.clone();
    bench.reaches(&id, Phase::Running).await;
    bench.clock.advance(MINUTE);
    bench.reaches(&id, Phase::Paused).await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_survives_a_restart() {
    let mut bench = Bench::new().await;
    let id = bench.create_from(for_a_minute(Expiry::Kill)).await.id.clone();
    bench.reaches(&id, Phase::Running).await;
    bench.restart().await;
    assert_eq!(bench.phase(&id).await, Phase::Running);
    bench.clock.advance(MINUTE);
    is_gone(&bench, &id).await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passed_while_nobody_ran_is_met_at_the_start() {
    let mut bench = Bench::new().await;
    let id = bench.create_from(for_a_minute(Expiry::Kill)).await.id.clone();
    bench.reaches(&id, Phase::Running).await;
    bench.engine.shutdown().await;
    bench.clock.advance(MINUTE * 2);
    bench.restart().await;
    is_gone(&bench, &id).await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_can_be_moved_and_taken_away() {
    let bench = Bench::new().await;
    let id = bench.create_from(for_a_minute(Expiry::Kill)).await.id.clone();
    let later = Deadline { at: bench.clock.now().saturating_add(MINUTE * 3), then: Expiry::Kill };
    let set = async |deadline| bench.engine.set_deadline(&bench.tenant, &id, deadline).await;
    assert_eq!(set(Some(later)).await.unwrap().life.deadline(), Some(later));
    bench.clock.advance(MINUTE * 2);
    bench.reaches(&id, Phase::Running).await;
    set(None).await.unwrap();
    bench.clock.advance(MINUTE * 100);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(bench.phase(&id).await, Phase::Running);
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_takes_too_long_ends_at_the_deadline() {
    let bench = Bench::new().await;
    bench.machine.hold(atoll_core::Action::Create);
    let id = bench.create_from(for_a_minute(Expiry::Kill)).await.id.clone();
    bench.has_begun(1).await;
    bench.clock.advance(MINUTE);
    is_gone(&bench, &id).await;
    assert_eq!(bench.machine.tally().dropped, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_may_stop_aging_and_has_its_lifetime_again_afterwards() {
    let mut bench = Bench::new().await;
    let id = bench.create_from(for_a_minute(Expiry::Kill)).await.id.clone();
    bench.reaches(&id, Phase::Running).await;
    bench.machine.hold(Action::Pause);
    bench.engine.pause(&bench.tenant, &id, Keep::Memory, Aging::Stops(None)).await.unwrap();
    // The old deadline passes while it is being paused.
    bench.clock.advance(MINUTE * 2);
    tokio::time::sleep(MINUTE).await;
    bench.machine.release();
    bench.reaches(&id, Phase::Paused).await;
    bench.restart().await;
    let sandbox = bench.engine.resume(&bench.tenant, &id, None).await.unwrap();
    let at = bench.clock.now().saturating_add(MINUTE);
    assert_eq!(sandbox.life.deadline(), Some(Deadline { at, then: Expiry::Kill }));
    bench.reaches(&id, Phase::Running).await;
    bench.clock.advance(MINUTE);
    is_gone(&bench, &id).await;
}

#[tokio::test(start_paused = true)]
async fn a_resumption_and_its_end_are_one_change() {
    let mut bench = Bench::new().await;
    let id = bench.create_from(for_a_minute(Expiry::Kill)).await.id.clone();
    bench.reaches(&id, Phase::Running).await;
    let kept = Deadline { at: bench.clock.now().saturating_add(MINUTE * 9), then: Expiry::Kill };
    let aging = Aging::Stops(Some(kept));
    let paused = bench.engine.pause(&bench.tenant, &id, Keep::Memory, aging).await.unwrap();
    assert_eq!(paused.life.deadline(), Some(kept));
    bench.reaches(&id, Phase::Paused).await;
    bench.machine.hold(Action::Resume);
    let until = Deadline { at: bench.clock.now().saturating_add(MINUTE * 3), then: Expiry::Kill };
    bench.engine.resume(&bench.tenant, &id, Some(until)).await.unwrap();
    // A crash right after the answer.
    bench.replace_engine().await;
    bench.machine.release();
    bench.reaches(&id, Phase::Running).await;
    let sandbox = bench.engine.get(&bench.tenant, &id).await.unwrap();
    assert_eq!(sandbox.life.deadline(), Some(until));
}
