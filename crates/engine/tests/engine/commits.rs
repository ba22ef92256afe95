//! Nothing is acknowledged before it is durable.

use atoll_control::{Control, Filter, Paging};
use atoll_core::{Aging, Desired, ErrorKind, Keep, Phase};
use atoll_testkit::{eventually, sample};

use crate::bench::{Bench, script};

const ALL: Paging = Paging { skip: 0, take: 100 };

#[tokio::test(start_paused = true)]
async fn requests_that_come_together_are_written_together() {
    let bench = Bench::new().await;
    bench.disk.hold();
    let creates: Vec<_> = (0..50)
        .map(|_| {
            let (engine, tenant) = (bench.engine.clone(), bench.tenant.clone());
            tokio::spawn(async move { engine.create(&tenant, sample::create()).await })
        })
        .collect();
    bench.has_begun(50).await;
    assert!(creates.iter().all(|create| !create.is_finished()), "acknowledged, not durable");
    let page = bench.engine.list(&bench.tenant, &Filter::default(), ALL).await.unwrap();
    assert_eq!(page.total, 0, "shown, not durable");
    bench.disk.release();
    for create in creates {
        let sandbox = create.await.unwrap().unwrap();
        assert!(bench.disk.sandbox(&sandbox.id).is_some());
    }
    assert!(bench.disk.commits().len() <= 4, "{:?}", bench.disk.commits());
}

#[tokio::test(start_paused = true)]
async fn a_creation_begins_while_its_record_is_written() {
    let bench = Bench::new().await;
    bench.disk.hold();
    let (engine, tenant) = (bench.engine.clone(), bench.tenant.clone());
    let create = tokio::spawn(async move { engine.create(&tenant, sample::create()).await });
    bench.machine_holds(1).await;
    assert!(!create.is_finished());
    bench.disk.release();
    let sandbox = create.await.unwrap().unwrap();
    assert_eq!(bench.at_rest(&sandbox.id).await.life.phase(), Phase::Running);
}

#[tokio::test(start_paused = true)]
async fn a_removal_waits_for_its_record() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    bench.disk.hold();
    let (engine, tenant, victim) = (bench.engine.clone(), bench.tenant.clone(), id.clone());
    let kill = tokio::spawn(async move { engine.kill(&tenant, &victim).await });
    // A look at everything passes by and must not change that.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert!(!kill.is_finished());
    assert_eq!(bench.machine_holds(1).await[0].0, id);
    assert_eq!(bench.phase(&id).await, Phase::Running, "not durable, so not shown");
    bench.disk.release();
    kill.await.unwrap().unwrap();
    assert!(bench.disk.sandbox(&id).is_none_or(|s| s.life.desired() == Desired::Gone));
    bench.machine_holds(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_costs_no_sandbox_and_leaves_nothing() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    bench.disk.set_full(true);
    let error = bench.engine.create(&bench.tenant, sample::create()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("no space left"), "{error}");
    bench.machine_holds(1).await;
    let error = bench.engine.kill(&bench.tenant, &id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error =
        bench.engine.pause(&bench.tenant, &id, Keep::Memory, Aging::GoesOn).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(bench.phase(&id).await, Phase::Running);

    bench.disk.set_full(false);
    bench.engine.pause(&bench.tenant, &id, Keep::Memory, Aging::GoesOn).await.unwrap();
    bench.reaches(&id, Phase::Paused).await;
    bench.engine.kill(&bench.tenant, &id).await.unwrap();
    bench.machine_holds(0).await;
    eventually("all records are gone", async || {
        bench.disk.contents().sandboxes.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_was_learnt_on_a_full_disk_is_written_later() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    bench.disk.set_full(true);
    bench.machine.exit(&id, 3);
    bench.reaches(&id, Phase::Failed).await;
    assert_eq!(bench.machine.sandboxes().len(), 1, "its end is durable before it is cleared away");
    bench.disk.set_full(false);
    bench.machine_holds(0).await;
    assert_eq!(bench.disk.sandbox(&id).unwrap().life.phase(), Phase::Failed);
}

#[tokio::test(start_paused = true)]
async fn an_end_is_durable_before_it_is_cleared_away() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    bench.disk.hold();
    bench.machine.exit(&id, 3);
    bench.reaches(&id, Phase::Failed).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(bench.machine.sandboxes().len(), 1);
    bench.disk.release();
    bench.machine_holds(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_is_sent_once_however_long_its_record_takes() {
    let bench = Bench::new().await;
    bench.disk.hold();
    let (engine, tenant) = (bench.engine.clone(), bench.tenant.clone());
    let request = script("echo bye; exit 3");
    let create = tokio::spawn(async move { engine.create(&tenant, request).await });
    bench.machine_holds(1).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(bench.machine.tally().begun, 1);
    bench.disk.release();
    let id = create.await.unwrap().unwrap().id.clone();
    assert_eq!(bench.at_rest(&id).await.life.phase(), Phase::Failed);
}
