//! What goes wrong is repeated, told, and cleared away.

use std::time::Duration;

use atoll_control::Control;
use atoll_core::{Action, Aging, Keep, Phase};
use atoll_testkit::eventually;

use crate::bench::{Bench, script};

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_after_a_pause() {
    let bench = Bench::new().await;
    bench.machine.fail_next(2, true);
    let id = bench.create().await.id.clone();
    bench.has_begun(1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.machine.tally().begun, 1, "no second try before its time");
    for tries in 2..=3 {
        bench.clock.advance(Duration::from_secs(1));
        bench.has_begun(tries).await;
    }
    let sandbox = bench.at_rest(&id).await;
    assert_eq!((sandbox.life.phase(), sandbox.life.diagnostic()), (Phase::Running, None));
}

#[tokio::test(start_paused = true)]
async fn what_will_not_pass_is_told_and_cleared_away() {
    let bench = Bench::new().await;
    bench.machine.fail_next(1, false);
    let id = bench.create().await.id.clone();
    let sandbox = bench.at_rest(&id).await;
    assert_eq!(sandbox.life.phase(), Phase::Failed);
    assert_eq!(sandbox.life.diagnostic().unwrap().reason, "SIM_BROKEN");
    bench.machine_holds(0).await;
    assert_eq!(bench.phase(&id).await, Phase::Failed, "the failure stays visible");
    assert_eq!(bench.engine.stats().failures, 1);
    bench.engine.kill(&bench.tenant, &id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_does_not_stop_retries() {
    let bench = Bench::new().await;
    bench.machine.fail_next(1, true);
    let id = bench.create().await.id.clone();
    bench.has_begun(1).await;
    bench.clock.set(atoll_core::Timestamp::from_micros(1));
    bench.reaches(&id, Phase::Running).await;
}

#[tokio::test(start_paused = true)]
async fn an_entrypoint_that_ends_leaves_its_output() {
    let bench = Bench::new().await;
    for (text, phase) in [("echo bye; exit 0", Phase::Ended), ("echo bye; exit 3", Phase::Failed)] {
        let id = bench.create_from(script(text)).await.id.clone();
        assert_eq!(bench.at_rest(&id).await.life.phase(), phase);
        bench.machine_holds(0).await;
        let log = bench.engine.logs(&bench.tenant, &id, 100).await.unwrap();
        assert_eq!((log.bytes.as_slice(), log.truncated), (&b"bye\n"[..], false));
        let log = bench.engine.logs(&bench.tenant, &id, 2).await.unwrap();
        assert_eq!((log.bytes.as_slice(), log.truncated), (&b"e\n"[..], true));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_sandbox_is_noticed_without_a_hint() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    bench.machine.lose(&id);
    bench.reaches(&id, Phase::Failed).await;
    let sandbox = bench.engine.get(&bench.tenant, &id).await.unwrap();
    assert_eq!(sandbox.life.diagnostic().unwrap().reason, "SANDBOX_LOST");
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_fails_for_good_leaves_it_running() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    bench.machine.fail_next(1, false);
    bench.engine.pause(&bench.tenant, &id, Keep::Memory, Aging::GoesOn).await.unwrap();
    let sandbox = bench.at_rest(&id).await;
    assert_eq!(sandbox.life.phase(), Phase::Running);
    assert!(sandbox.life.diagnostic().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_failure_of_what_nobody_wants_any_more_delays_nothing() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    bench.machine.hold(Action::Pause);
    bench.engine.pause(&bench.tenant, &id, Keep::Memory, Aging::GoesOn).await.unwrap();
    bench.has_begun(2).await;
    bench.engine.kill(&bench.tenant, &id).await.unwrap();
    bench.machine.fail_next(1, true);
    bench.machine.release();
    bench.machine_holds(0).await;
}

#[tokio::test(start_paused = true)]
async fn an_exit_during_an_action_is_not_missed() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    bench.machine.hold(Action::Pause);
    bench.engine.pause(&bench.tenant, &id, Keep::Memory, Aging::GoesOn).await.unwrap();
    bench.has_begun(2).await;
    bench.machine.exit(&id, 9);
    bench.machine.release();
    bench.reaches(&id, Phase::Failed).await;
    bench.machine_holds(0).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_says_is_part_of_the_story() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    bench.machine.say(&id, "layer 3 of 7");
    eventually("the line is in the timeline", async || {
        let sandbox = bench.engine.get(&bench.tenant, &id).await.unwrap();
        let lines = sandbox.life.timeline().entries();
        lines.iter().any(|line| line.message == "layer 3 of 7").then_some(())
    })
    .await;
}
