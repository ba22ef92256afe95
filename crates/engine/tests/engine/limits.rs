//! Quotas and bounds.

use atoll_control::Control;
use atoll_core::{Action, Aging, ErrorKind, Keep, Phase};
use atoll_engine::EngineConfig;
use atoll_testkit::{eventually, sample};

use crate::bench::Bench;

#[tokio::test(start_paused = true)]
async fn a_tenant_has_so_many_sandboxes_and_no_more() {
    let config = EngineConfig { sandboxes_per_tenant_max: 2, ..EngineConfig::default() };
    let bench = Bench::with(config).await;
    let first = bench.running().await;
    bench.running().await;
    let error = bench.engine.create(&bench.tenant, sample::create()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert!(error.message().contains('2') && error.message().contains("remove"), "{error}");
    let other = sample::tenant("beta");
    bench.engine.create(&other, sample::create()).await.unwrap();
    bench.engine.kill(&bench.tenant, &first).await.unwrap();
    bench.running().await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_was_not_written_does_not_count() {
    let config = EngineConfig { sandboxes_per_tenant_max: 1, ..EngineConfig::default() };
    let bench = Bench::with(config).await;
    bench.disk.set_full(true);
    bench.engine.create(&bench.tenant, sample::create()).await.unwrap_err();
    bench.disk.set_full(false);
    bench.running().await;
}

#[tokio::test(start_paused = true)]
async fn the_quota_counts_on_after_a_restart() {
    let config = EngineConfig { sandboxes_per_tenant_max: 1, ..EngineConfig::default() };
    let mut bench = Bench::with(config).await;
    bench.running().await;
    bench.restart().await;
    let error = bench.engine.create(&bench.tenant, sample::create()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
}

#[tokio::test(start_paused = true)]
async fn slow_creations_are_bounded_and_do_not_delay_pauses() {
    let config = EngineConfig { actions_at_once: 2, ..EngineConfig::default() };
    let bench = Bench::with(config).await;
    let running = bench.running().await;
    bench.machine.hold(Action::Create);
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(bench.create().await.id.clone());
    }
    bench.has_begun(3).await;
    bench.engine.pause(&bench.tenant, &running, Keep::Memory, Aging::GoesOn).await.unwrap();
    bench.reaches(&running, Phase::Paused).await;
    assert_eq!(bench.engine.stats().in_flight, 2);
    bench.machine.release();
    for id in &ids {
        bench.reaches(id, Phase::Running).await;
    }
    assert_eq!(bench.machine.tally().at_once_max, 3);
    eventually("nothing is in flight", async || {
        (bench.engine.stats().in_flight == 0).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_has_so_many_snapshots_and_no_more() {
    let config = EngineConfig { snapshots_per_tenant_max: 1, ..EngineConfig::default() };
    let bench = Bench::with(config).await;
    let id = bench.running().await;
    bench.engine.snapshot(&bench.tenant, &id, None).await.unwrap();
    let error = bench.engine.snapshot(&bench.tenant, &id, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
}
