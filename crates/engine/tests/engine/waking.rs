//! A paused sandbox that may be woken wakes when somebody connects.

use std::time::Duration;

use atoll_control::{Access, Control, Create, Port};
use atoll_core::{Action, Aging, Deadline, Expiry, Keep, Phase, SandboxId};
use atoll_testkit::{eventually, http, sample};

use crate::bench::Bench;

const WAKE_FOR: Duration = Duration::from_secs(300);
const MINUTE: Duration = Duration::from_secs(60);
const PAUSE: Expiry = Expiry::Pause(Keep::Files);

fn waking() -> Create {
    let mut create = Create { lifetime: Some(MINUTE), on_expiry: PAUSE, ..sample::create() };
    create.spec.wake_for = Some(WAKE_FOR);
    create
}

async fn expired(bench: &Bench) -> SandboxId {
    let id = bench.create_from(waking()).await.id.clone();
    bench.reaches(&id, Phase::Running).await;
    bench.clock.advance(MINUTE);
    bench.reaches(&id, Phase::Paused).await;
    id
}

async fn ping(bench: &Bench, id: &SandboxId) -> u16 {
    let stream = bench.engine.connect(&Access::Signed, id, Port::Agent).await.unwrap();
    http::get(stream, "/ping").await
}

#[tokio::test(start_paused = true)]
async fn connecting_resumes_it_and_its_deadline_means_what_it_meant() {
    let bench = Bench::new().await;
    let id = expired(&bench).await;
    assert_eq!(ping(&bench, &id).await, 200);
    let sandbox = bench.engine.get(&bench.tenant, &id).await.unwrap();
    assert_eq!(sandbox.life.phase(), Phase::Running);
    let at = sample::NOW.saturating_add(MINUTE).saturating_add(WAKE_FOR);
    assert_eq!(sandbox.life.deadline(), Some(Deadline { at, then: PAUSE }));
    bench.clock.advance(WAKE_FOR);
    bench.reaches(&id, Phase::Paused).await;
    bench.engine.check(&Access::Signed, &id).await.unwrap();
    assert_eq!(bench.phase(&id).await, Phase::Running);
}

#[tokio::test(start_paused = true)]
async fn many_who_connect_share_one_resume() {
    let bench = Bench::new().await;
    let id = expired(&bench).await;
    let begun = bench.machine.tally().begun;
    bench.machine.hold(Action::Resume);
    let connects: Vec<_> = (0..20)
        .map(|_| {
            let (engine, id) = (bench.engine.clone(), id.clone());
            tokio::spawn(async move {
                engine.connect(&Access::Signed, &id, Port::Agent).await.map(drop)
            })
        })
        .collect();
    bench.has_begun(begun + 1).await;
    bench.machine.release();
    for connect in connects {
        connect.await.unwrap().unwrap();
    }
    assert_eq!(bench.machine.tally().begun, begun + 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_being_paused_is_woken_when_it_is_paused() {
    let bench = Bench::new().await;
    let id = bench.create_from(waking()).await.id.clone();
    bench.reaches(&id, Phase::Running).await;
    bench.machine.hold(Action::Pause);
    bench.engine.pause(&bench.tenant, &id, Keep::Memory, Aging::GoesOn).await.unwrap();
    let (engine, wanted) = (bench.engine.clone(), id.clone());
    let connect = tokio::spawn(async move { engine.check(&Access::Signed, &wanted).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!connect.is_finished());
    bench.machine.release();
    connect.await.unwrap().unwrap();
    assert_eq!(bench.phase(&id).await, Phase::Running);
    // Paused by hand with time left: the longer of the two deadlines holds.
    let sandbox = bench.engine.get(&bench.tenant, &id).await.unwrap();
    assert_eq!(sandbox.life.deadline().unwrap().at, sample::NOW.saturating_add(WAKE_FOR));
}

#[tokio::test(start_paused = true)]
async fn without_the_wish_or_the_right_it_sleeps_on() {
    let bench = Bench::new().await;
    let plain = bench.paused().await;
    let error = bench.engine.check(&Access::Signed, &plain).await.unwrap_err();
    assert_eq!(error.reason(), Some("SANDBOX_PAUSED"));
    let id = expired(&bench).await;
    let stranger = Access::Token("wrong".to_owned());
    bench.engine.check(&stranger, &id).await.unwrap_err();
    assert_eq!(bench.phase(&id).await, Phase::Paused);
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_wake_or_is_removed_says_so() {
    let bench = Bench::new().await;
    let id = expired(&bench).await;
    bench.machine.hold(Action::Resume);
    let error = bench.engine.check(&Access::Signed, &id).await.unwrap_err();
    assert!(error.message().contains("60 s"), "{error}");
    let (engine, wanted) = (bench.engine.clone(), id.clone());
    let check = tokio::spawn(async move { engine.check(&Access::Signed, &wanted).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.engine.kill(&bench.tenant, &id).await.unwrap();
    let error = check.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), atoll_core::ErrorKind::NotFound);
    bench.machine.release();
    bench.machine_holds(0).await;
    eventually("the record is gone", async || bench.disk.sandbox(&id).is_none().then_some(()))
        .await;
}
