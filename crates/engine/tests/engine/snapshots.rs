//! Keeping files.

use std::sync::Arc;

use atoll_control::{Control, Create, SnapshotFilter};
use atoll_core::{ErrorKind, Phase, Snapshot, SnapshotId, SnapshotState, Source};
use atoll_engine::seam::Change;
use atoll_engine::{EngineConfig, Store};
use atoll_testkit::{eventually, sample};

use crate::bench::{Bench, script};

async fn settled(bench: &Bench, id: &SnapshotId) -> Arc<Snapshot> {
    eventually("the snapshot is decided", async || {
        let snapshot = bench.engine.get_snapshot(&bench.tenant, id).await.unwrap();
        Some(snapshot).filter(|snapshot| snapshot.state != SnapshotState::Creating)
    })
    .await
}

fn from_snapshot(id: &SnapshotId, text: &str) -> Create {
    let mut create = script(text);
    create.spec.source = Source::Snapshot(id.clone());
    create
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_makes_sandboxes_and_outlives_its_source() {
    let bench = Bench::new().await;
    let source = bench.create_from(script("echo kept > /mark; sleep 9")).await.id.clone();
    bench.reaches(&source, Phase::Running).await;
    let name = Some("first".to_owned());
    let taken = bench.engine.snapshot(&bench.tenant, &source, name.clone()).await.unwrap();
    assert_eq!((&taken.state, &taken.name), (&SnapshotState::Creating, &name));
    // The snapshot was acknowledged, so it is taken before its source goes.
    bench.engine.kill(&bench.tenant, &source).await.unwrap();
    assert_eq!(settled(&bench, &taken.id).await.state, SnapshotState::Ready);
    bench.machine_holds(0).await;

    let made = bench.create_from(from_snapshot(&taken.id, "cat /mark; sleep 9")).await.id.clone();
    bench.reaches(&made, Phase::Running).await;
    let log = bench.engine.logs(&bench.tenant, &made, 100).await.unwrap();
    assert_eq!(log.bytes, b"kept\n");
    let found = SnapshotFilter { sandbox: Some(source), name };
    let found = bench.engine.list_snapshots(&bench.tenant, &found).await.unwrap();
    assert_eq!(found.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_in_use_stays() {
    let bench = Bench::new().await;
    let source = bench.running().await;
    let id = bench.engine.snapshot(&bench.tenant, &source, None).await.unwrap().id.clone();
    settled(&bench, &id).await;
    let user = bench.create_from(from_snapshot(&id, "sleep 9")).await.id.clone();
    bench.reaches(&user, Phase::Running).await;
    let error = bench.engine.delete_snapshot(&bench.tenant, &id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains(user.as_str()), "{error}");
    bench.engine.kill(&bench.tenant, &user).await.unwrap();
    bench.engine.delete_snapshot(&bench.tenant, &id).await.unwrap();
    eventually("the snapshot is gone", async || {
        let answer = bench.engine.get_snapshot(&bench.tenant, &id).await;
        answer.err().filter(|error| error.kind() == ErrorKind::NotFound)
    })
    .await;
    assert_eq!(bench.machine.kept(), []);
    let refused = bench.engine.create(&bench.tenant, from_snapshot(&id, "sleep 9")).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn only_running_sandboxes_are_kept() {
    let bench = Bench::new().await;
    let id = bench.paused().await;
    let error = bench.engine.snapshot(&bench.tenant, &id, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_fails_says_why() {
    let bench = Bench::new().await;
    let source = bench.running().await;
    bench.machine.fail_next(1, false);
    let id = bench.engine.snapshot(&bench.tenant, &source, None).await.unwrap().id.clone();
    let state = settled(&bench, &id).await.state.clone();
    assert!(matches!(&state, SnapshotState::Failed(why) if why.contains("refused")), "{state:?}");
    let refused = bench.engine.create(&bench.tenant, from_snapshot(&id, "sleep 9")).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_was_not_written_never_was() {
    let config = EngineConfig { snapshots_per_tenant_max: 1, ..EngineConfig::default() };
    let bench = Bench::with(config).await;
    let source = bench.running().await;
    bench.disk.set_full(true);
    let refused = bench.engine.snapshot(&bench.tenant, &source, None).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    bench.disk.set_full(false);
    let id = bench.engine.snapshot(&bench.tenant, &source, None).await.unwrap().id.clone();
    assert_eq!(settled(&bench, &id).await.state, SnapshotState::Ready);
    eventually("only the second is on disk", async || {
        (bench.disk.contents().snapshots.len() == 1).then_some(())
    })
    .await;
    assert_eq!(bench.machine.kept(), [id]);
}

#[tokio::test(start_paused = true)]
async fn interrupted_snapshots_are_decided_at_the_start() {
    let mut bench = Bench::new().await;
    let source = bench.running().await;
    let kept = bench.engine.snapshot(&bench.tenant, &source, None).await.unwrap().id.clone();
    settled(&bench, &kept).await;
    bench.engine.shutdown().await;
    let put = |id: &str, state| {
        let snapshot = sample::snapshot(id, source.as_str(), bench.tenant.as_str());
        Change::PutSnapshot(Box::new(Snapshot { state, ..snapshot }))
    };
    let changes = vec![
        put(kept.as_str(), SnapshotState::Creating),
        put("lost", SnapshotState::Creating),
        put("deleting", SnapshotState::Deleting),
    ];
    bench.disk.commit(changes).await.unwrap();
    bench.restart().await;
    assert_eq!(settled(&bench, &kept).await.state, SnapshotState::Ready);
    let lost = settled(&bench, &SnapshotId::parse("lost").unwrap()).await;
    assert!(matches!(lost.state, SnapshotState::Failed(_)));
    eventually("the deletion went on", async || {
        bench.disk.snapshot(&SnapshotId::parse("deleting").unwrap()).is_none().then_some(())
    })
    .await;
}
