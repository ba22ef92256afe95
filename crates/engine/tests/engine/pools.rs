//! Pools are filled, kept filled and emptied as declared.

use std::time::Duration;

use atoll_control::{Control, Filter, Paging, Pools};
use atoll_core::{Action, ErrorKind, ImageSource, MountSource, Phase, RegistryAuth, Source};
use atoll_engine::EngineConfig;
use atoll_testkit::{eventually, sample};

use crate::bench::Bench;

const ALL: Paging = Paging { skip: 0, take: 100 };

#[tokio::test(start_paused = true)]
async fn a_pool_is_filled_emptied_and_forgotten() {
    let bench = Bench::new().await;
    bench.pool("warm", 3).await;
    bench.machine_holds(3).await;
    bench.pool("warm", 1).await;
    bench.machine_holds(1).await;
    bench.pool("warm", 0).await;
    bench.machine_holds(0).await;
    bench.pool("warm", 2).await;
    for _ in 0..2 {
        bench.engine.remove_pool("warm").await.unwrap();
    }
    assert!(bench.engine.pools().await.is_empty());
    bench.machine_holds(0).await;
    eventually("nothing is on disk", async || {
        let left = bench.disk.contents();
        (left.sandboxes.is_empty() && left.pools.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_smaller_pool_loses_no_more_than_it_must_however_slow_the_disk() {
    let bench = Bench::new().await;
    bench.pool("warm", 5).await;
    let created = bench.machine.tally().created;
    bench.engine.set_pool(sample::pool("warm", 3)).await.unwrap();
    bench.disk.hold();
    // Looks at everything pass by while the disk is slow.
    tokio::time::sleep(Duration::from_secs(60)).await;
    bench.disk.release();
    bench.stocked("warm", 3).await;
    bench.machine_holds(3).await;
    assert_eq!(bench.machine.tally().created, created, "none was made again");
}

#[tokio::test(start_paused = true)]
async fn nobody_sees_or_pays_for_stock() {
    let config = EngineConfig { sandboxes_per_tenant_max: 1, ..EngineConfig::default() };
    let bench = Bench::with(config).await;
    bench.pool("warm", 3).await;
    let (id, _) = bench.machine_holds(3).await[0].clone();
    for tenant in [&bench.tenant, &sample::tenant("atollstock")] {
        let page = bench.engine.list(tenant, &Filter::default(), ALL).await.unwrap();
        assert_eq!(page.total, 0);
        let kinds = [
            bench.engine.get(tenant, &id).await.err(),
            bench.engine.kill(tenant, &id).await.err(),
            bench.engine.usage(tenant, &id).await.err(),
        ]
        .map(|error| error.map(|error| error.kind()));
        assert_eq!(kinds, [Some(ErrorKind::NotFound); 3]);
    }
    let access = atoll_control::Access::Signed;
    let refused = bench.engine.connect(&access, &id, atoll_control::Port::Agent).await.err();
    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::NotFound));
    let stats = bench.engine.stats();
    assert_eq!((stats.creates, stats.kills, stats.sandboxes), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn stock_that_dies_is_replaced_after_a_pause_and_the_pool_says_why() {
    let bench = Bench::new().await;
    bench.pool("warm", 1).await;
    let (id, _) = bench.machine_holds(1).await[0].clone();
    bench.machine.exit(&id, 3);
    let status = eventually("the pool is in trouble", async || {
        bench.status("warm").await.filter(|status| status.trouble.is_some())
    })
    .await;
    assert!(status.trouble.unwrap().contains("code 3"));
    bench.machine_holds(0).await;
    bench.clock.advance(Duration::from_secs(2));
    let status = bench.stocked("warm", 1).await;
    assert_eq!(status.trouble, None);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_can_not_be_filled_backs_off() {
    let bench = Bench::new().await;
    bench.machine.fail_next(1, false);
    bench.engine.set_pool(sample::pool("warm", 1)).await.unwrap();
    for second in [1, 2, 4, 8] {
        eventually("it failed again", async || {
            let trouble = bench.status("warm").await?.trouble;
            (trouble.is_some() && bench.machine.sandboxes().is_empty()).then_some(())
        })
        .await;
        let begun = bench.machine.tally().begun;
        // Real time passes, and with it looks at everything; the pool's own time doesn't.
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(bench.machine.tally().begun, begun, "it waits before it tries again");
        bench.machine.fail_next(1, false);
        bench.clock.advance(Duration::from_secs(second));
        eventually("it tries again", async || (bench.machine.tally().begun > begun).then_some(()))
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_does_not_make_a_pool_spin() {
    let bench = Bench::new().await;
    bench.pool("warm", 2).await;
    bench.disk.set_full(true);
    let (id, _) = bench.machine_holds(2).await[0].clone();
    bench.machine.exit(&id, 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(bench.machine.tally().begun < 20, "{:?}", bench.machine.tally());
    bench.disk.set_full(false);
    eventually("the pool is full again", async || {
        bench.clock.advance(Duration::from_secs(2));
        bench.status("warm").await.filter(|status| status.ready == 2 && status.starting == 0)
    })
    .await;
    bench.machine_holds(2).await;
}

#[tokio::test(start_paused = true)]
async fn filling_gives_way_to_creations() {
    let config = EngineConfig { actions_at_once: 1, stock_at_once: 2, ..EngineConfig::default() };
    let bench = Bench::with(config).await;
    bench.machine.hold(Action::Create);
    let first = bench.create().await.id.clone();
    let second = bench.create().await.id.clone();
    bench.has_begun(1).await;
    bench.engine.set_pool(sample::pool("warm", 5)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // One creation runs, one waits for its place: stock waits behind it.
    assert_eq!(bench.machine.tally().begun, 1);
    bench.machine.release();
    bench.reaches(&first, Phase::Running).await;
    bench.reaches(&second, Phase::Running).await;
    bench.stocked("warm", 5).await;
    assert!(bench.machine.tally().at_once_max <= 3, "{:?}", bench.machine.tally());
}

#[tokio::test(start_paused = true)]
async fn pools_and_their_stock_outlive_a_restart() {
    let mut bench = Bench::new().await;
    bench.pool("warm", 2).await;
    let before = bench.machine.sandboxes();
    bench.restart().await;
    bench.stocked("warm", 2).await;
    assert_eq!(bench.machine.sandboxes(), before, "stock was kept");
}

#[tokio::test(start_paused = true)]
async fn stock_of_an_older_declaration_is_replaced() {
    let bench = Bench::new().await;
    bench.pool("warm", 2).await;
    let before = bench.machine.sandboxes();
    let mut pool = sample::pool("warm", 2);
    pool.spec.env.insert("A".to_owned(), "1".to_owned());
    bench.engine.set_pool(pool).await.unwrap();
    eventually("all stock is new", async || {
        let now = bench.machine.sandboxes();
        let new = now.len() == 2 && now.iter().all(|there| !before.contains(there));
        new.then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_a_pool_is_refused() {
    let bench = Bench::new().await;
    let refused = async |change: &dyn Fn(&mut atoll_control::Pool)| {
        let mut pool = sample::pool("warm", 1);
        change(&mut pool);
        bench.engine.set_pool(pool).await.unwrap_err()
    };
    for (field, error) in [
        ("name", refused(&|pool| pool.name = "a/b".to_owned()).await),
        ("name", refused(&|pool| pool.name = String::new()).await),
        ("size", refused(&|pool| pool.size = 501).await),
        (
            "image",
            refused(&|pool| {
                let auth = RegistryAuth { username: String::new(), password: String::new() };
                let image = ImageSource { reference: "x".to_owned(), auth: Some(auth) };
                pool.spec.source = Source::Image(image);
            })
            .await,
        ),
        (
            "mounts",
            refused(&|pool| {
                let (create, delete_with_sandbox) = (true, false);
                let source =
                    MountSource::Volume { name: "v".to_owned(), create, delete_with_sandbox };
                pool.spec.mounts.push(atoll_core::Mount {
                    name: "v".to_owned(),
                    source,
                    target: "/v".to_owned(),
                    sub_path: None,
                    read_only: false,
                });
            })
            .await,
        ),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.message().starts_with(field), "{error}");
    }
    assert!(bench.engine.pools().await.is_empty());
}
