//! Copies of a running sandbox.

use std::collections::BTreeSet;
use std::time::Duration;

use atoll_control::{Control, SnapshotFilter};
use atoll_core::{ErrorKind, Expiry, Keep, Phase, SandboxId, SnapshotState, Source};
use atoll_engine::EngineConfig;
use atoll_testkit::eventually;
use tokio::task::JoinHandle;

use crate::bench::{Bench, script};

async fn no_snapshot_is_left(bench: &Bench) {
    eventually("the hidden snapshot is gone", async || {
        let gone = bench.machine.kept().is_empty() && bench.disk.contents().snapshots.is_empty();
        gone.then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn copies_have_its_files_and_wishes_and_names_of_their_own() {
    let bench = Bench::new().await;
    let mut create = script("cat /mark; echo kept > /mark; sleep 9");
    create.spec.env.insert("A".to_owned(), "1".to_owned());
    create.spec.metadata.insert("k".to_owned(), "v".to_owned());
    for name in ["mark", "key"] {
        create.spec.extensions.insert(name.to_owned(), "x".to_owned());
    }
    create.lifetime = Some(Duration::from_secs(9999));
    create.on_expiry = Expiry::Pause(Keep::Files);
    let source = bench.create_from(create.clone()).await.id.clone();
    bench.reaches(&source, Phase::Running).await;
    let hour = Duration::from_secs(3600);
    let copies = bench.engine.fork(&bench.tenant, &source, 3, Some(hour), &["key"]).await.unwrap();
    let mut ids = BTreeSet::new();
    let mut tokens = BTreeSet::new();
    for copy in copies {
        let copy = copy.unwrap();
        assert!(ids.insert(copy.id.clone()) && tokens.insert(copy.access_token.clone()));
        assert_eq!(
            (&copy.spec.env, &copy.spec.metadata),
            (&create.spec.env, &create.spec.metadata)
        );
        assert_eq!(copy.spec.extensions.keys().collect::<Vec<_>>(), ["mark"]);
        let deadline = copy.life.deadline().unwrap();
        assert_eq!(deadline.at, copy.created_at.saturating_add(hour));
        assert_eq!(deadline.then, Expiry::Pause(Keep::Files));
        assert!(matches!(copy.spec.source, Source::Snapshot(_)));
        bench.reaches(&copy.id, Phase::Running).await;
        let log = bench.engine.logs(&bench.tenant, &copy.id, 99).await.unwrap();
        assert_eq!(log.bytes, b"kept\n");
    }
    let shown = bench.engine.list_snapshots(&bench.tenant, &SnapshotFilter::default()).await;
    assert!(shown.unwrap().is_empty(), "the snapshot is hidden");
    assert_eq!(bench.machine.kept().len(), 1);
    bench.engine.kill(&bench.tenant, &source).await.unwrap();
    // The last user takes it along.
    for id in &ids {
        assert_eq!(bench.machine.kept().len(), 1);
        bench.engine.kill(&bench.tenant, id).await.unwrap();
    }
    no_snapshot_is_left(&bench).await;
    bench.machine_holds(0).await;
}

#[tokio::test(start_paused = true)]
async fn each_copy_is_decided_on_its_own() {
    let config = EngineConfig { sandboxes_per_tenant_max: 3, ..EngineConfig::default() };
    let bench = Bench::with(config).await;
    let source = bench.running().await;
    let copies = bench.engine.fork(&bench.tenant, &source, 4, None, &[]).await.unwrap();
    let made = copies.iter().filter(|copy| copy.is_ok()).count();
    assert_eq!((made, copies.len()), (2, 4));
    let refused = copies.into_iter().find_map(Result::err).unwrap();
    assert_eq!(refused.reason(), Some("QUOTA_EXCEEDED"));
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_forked_says_why_and_leaves_nothing() {
    let bench = Bench::new().await;
    let paused = bench.paused().await;
    let error = bench.engine.fork(&bench.tenant, &paused, 1, None, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let running = bench.running().await;
    for count in [0, 101] {
        let error = bench.engine.fork(&bench.tenant, &running, count, None, &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    let stranger = atoll_testkit::sample::tenant("beta");
    let error = bench.engine.fork(&stranger, &running, 1, None, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    bench.machine.fail_next(1, false);
    let error = bench.engine.fork(&bench.tenant, &running, 1, None, &[]).await.unwrap_err();
    assert!(error.message().contains("refused"), "{error}");
    bench.disk.set_full(true);
    let error = bench.engine.fork(&bench.tenant, &running, 1, None, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    bench.disk.set_full(false);
    no_snapshot_is_left(&bench).await;
    bench.machine_holds(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_fork_whose_caller_went_away_leaves_nothing() {
    let bench = Bench::new().await;
    let source = bench.running().await;
    bench.disk.hold();
    let (engine, tenant, id) = (bench.engine.clone(), bench.tenant.clone(), source.clone());
    let fork = tokio::spawn(async move { engine.fork(&tenant, &id, 5, None, &[]).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    fork.abort();
    assert!(fork.await.unwrap_err().is_cancelled());
    bench.disk.release();
    no_snapshot_is_left(&bench).await;
    assert_eq!(bench.machine_holds(1).await[0].0, source);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_unused_hidden_snapshots_go_and_used_ones_stay() {
    let mut bench = Bench::new().await;
    let source = bench.running().await;
    let copies = bench.engine.fork(&bench.tenant, &source, 1, None, &[]).await.unwrap();
    let copy = copies[0].as_ref().unwrap().id.clone();
    bench.reaches(&copy, Phase::Running).await;
    bench.restart().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.machine.kept().len(), 1);
    bench.engine.kill(&bench.tenant, &copy).await.unwrap();
    bench.restart().await;
    no_snapshot_is_left(&bench).await;
}

/// Forks and is answered later.
fn forking(bench: &Bench, id: &SandboxId) -> JoinHandle<atoll_core::Result<()>> {
    let (engine, tenant, id) = (bench.engine.clone(), bench.tenant.clone(), id.clone());
    tokio::spawn(async move { engine.fork(&tenant, &id, 1, None, &[]).await.map(drop) })
}

/// Waits until so many snapshots are on disk and being taken.
async fn queued(bench: &Bench, count: usize) {
    eventually(&format!("{count} are queued"), async || {
        let all = bench.disk.contents().snapshots;
        let creating = all.iter().filter(|s| s.state == SnapshotState::Creating).count();
        (creating == count && bench.machine.tally().snapshots == 1).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn only_a_few_forks_of_one_sandbox_wait() {
    let bench = Bench::new().await;
    let source = bench.running().await;
    bench.machine.hold_snapshots();
    let forks: Vec<_> = (0..4).map(|_| forking(&bench, &source)).collect();
    queued(&bench, 4).await;
    let error = forking(&bench, &source).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Exhausted, Some("SNAPSHOTS_WAITING")));
    let error = bench.engine.snapshot(&bench.tenant, &source, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    bench.machine.release();
    for fork in forks {
        fork.await.unwrap().unwrap();
    }
    forking(&bench, &source).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn forks_that_are_being_made_count_as_snapshots() {
    let config = EngineConfig { snapshots_per_tenant_max: 1, ..EngineConfig::default() };
    let bench = Bench::with(config).await;
    let source = bench.running().await;
    bench.machine.hold_snapshots();
    let fork = forking(&bench, &source);
    queued(&bench, 1).await;
    let error = bench.engine.snapshot(&bench.tenant, &source, None).await.unwrap_err();
    assert_eq!(error.reason(), Some("QUOTA_EXCEEDED"));
    bench.machine.release();
    fork.await.unwrap().unwrap();
    bench.engine.snapshot(&bench.tenant, &source, None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_end_wins_over_forks_that_have_not_begun() {
    let bench = Bench::new().await;
    let source = bench.running().await;
    bench.machine.hold_snapshots();
    let forks: Vec<_> = (0..3).map(|_| forking(&bench, &source)).collect();
    queued(&bench, 3).await;
    bench.engine.kill(&bench.tenant, &source).await.unwrap();
    let failed = async || forks.iter().filter(|fork| fork.is_finished()).count();
    eventually("two are refused", async || (failed().await == 2).then_some(())).await;
    bench.machine.release();
    let mut made = 0;
    for fork in forks {
        match fork.await.unwrap() {
            Ok(()) => made += 1,
            Err(error) => assert!(error.message().contains("removed first"), "{error}"),
        }
    }
    assert_eq!((made, bench.machine.tally().snapshots), (1, 1));
    bench.machine_holds(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_fork_that_nobody_waits_for_is_not_begun() {
    let bench = Bench::new().await;
    let source = bench.running().await;
    bench.machine.hold_snapshots();
    let first = forking(&bench, &source);
    queued(&bench, 1).await;
    let second = forking(&bench, &source);
    queued(&bench, 2).await;
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    bench.machine.release();
    first.await.unwrap().unwrap();
    forking(&bench, &source).await.unwrap().unwrap();
    assert_eq!(bench.machine.tally().snapshots, 2, "the second was never begun");
}
