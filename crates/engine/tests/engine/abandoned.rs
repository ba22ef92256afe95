//! A caller that goes away before it has its sandbox leaves nothing behind.

use std::time::Duration;

use atoll_control::{Control, Filter, Paging, Pools};
use atoll_core::{Action, Phase};
use atoll_testkit::{eventually, sample};

use crate::bench::{Bench, PATIENCE, claim, script};

const ALL: Paging = Paging { skip: 0, take: 100 };

async fn nothing_is_left(bench: &Bench) {
    bench.machine_holds(0).await;
    eventually("no record is left", async || {
        bench.disk.contents().sandboxes.is_empty().then_some(())
    })
    .await;
    let page = bench.engine.list(&bench.tenant, &Filter::default(), ALL).await.unwrap();
    assert_eq!(page.total, 0);
}

#[tokio::test(start_paused = true)]
async fn while_the_record_is_written() {
    let bench = Bench::new().await;
    bench.disk.hold();
    let (engine, tenant) = (bench.engine.clone(), bench.tenant.clone());
    let create = tokio::spawn(async move { engine.create(&tenant, sample::create()).await });
    bench.machine_holds(1).await;
    create.abort();
    assert!(create.await.unwrap_err().is_cancelled());
    bench.disk.release();
    nothing_is_left(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_until_the_sandbox_runs() {
    let bench = Bench::new().await;
    bench.machine.hold(Action::Create);
    let (engine, tenant) = (bench.engine.clone(), bench.tenant.clone());
    let create =
        tokio::spawn(
            async move { engine.create_and_wait(&tenant, sample::create(), PATIENCE).await },
        );
    eventually("it is accepted", async || {
        let page = bench.engine.list(&bench.tenant, &Filter::default(), ALL).await.unwrap();
        (page.total == 1).then_some(())
    })
    .await;
    create.abort();
    assert!(create.await.unwrap_err().is_cancelled());
    nothing_is_left(&bench).await;
    assert_eq!(bench.machine.tally().dropped, 1, "the creation was stopped");
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_for_stock() {
    let bench = Bench::new().await;
    bench.machine.hold(Action::Create);
    bench.engine.set_pool(sample::pool("warm", 1)).await.unwrap();
    let (engine, tenant) = (bench.engine.clone(), bench.tenant.clone());
    let waits = tokio::spawn(async move { engine.create(&tenant, claim("warm", PATIENCE)).await });
    let waiting = async |count| {
        eventually("as many wait", async || {
            bench.status("warm").await.filter(|status| status.waiting == count)
        })
        .await;
    };
    waiting(1).await;
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    waiting(0).await;
    bench.machine.release();
    let status = bench.stocked("warm", 1).await;
    assert_eq!((status.hits, bench.machine.tally().created), (0, 1), "no sandbox was spent");
}

#[tokio::test(start_paused = true)]
async fn while_its_claim_is_written() {
    let bench = Bench::new().await;
    bench.pool("warm", 1).await;
    bench.disk.hold();
    let (engine, tenant) = (bench.engine.clone(), bench.tenant.clone());
    let create = tokio::spawn(async move { engine.create(&tenant, sample::create()).await });
    eventually("the claim has begun", async || {
        bench.status("warm").await.filter(|status| status.hits == 1)
    })
    .await;
    create.abort();
    assert!(create.await.unwrap_err().is_cancelled());
    bench.disk.release();
    bench.stocked("warm", 1).await;
    bench.machine_holds(1).await;
    assert_eq!(bench.machine.tally().shared, 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_got_the_answer_keeps_the_sandbox() {
    let bench = Bench::new().await;
    let made =
        bench.engine.create_and_wait(&bench.tenant, sample::create(), PATIENCE).await.unwrap();
    assert_eq!(made.life.phase(), Phase::Running);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.phase(&made.id).await, Phase::Running);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_run_in_the_end_is_removed_and_says_why() {
    let bench = Bench::new().await;
    let failed =
        bench.engine.create_and_wait(&bench.tenant, script("exit 3"), PATIENCE).await.unwrap();
    assert_eq!(failed.life.phase(), Phase::Failed);
    assert!(failed.life.diagnostic().is_some());
    nothing_is_left(&bench).await;
    bench.machine.hold(Action::Create);
    let short = Duration::from_millis(5);
    let late = bench.engine.create_and_wait(&bench.tenant, sample::create(), short).await.unwrap();
    assert_eq!(late.life.phase(), Phase::Starting);
    nothing_is_left(&bench).await;
}
