//! A claim is a create that finds its sandbox already there.

use std::collections::BTreeSet;
use std::time::Duration;

use atoll_control::{Claim, Control, Create, Pools};
use atoll_core::{Action, ErrorKind, Phase};
use atoll_engine::EngineConfig;
use atoll_testkit::{eventually, sample};

use crate::bench::{Bench, PATIENCE, claim, script};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_plain_creation_takes_stock_that_fits_and_the_pool_is_filled_again() {
    let bench = Bench::new().await;
    bench.pool("warm", 2).await;
    let stock: BTreeSet<_> = bench.machine.sandboxes().into_iter().map(|(id, _)| id).collect();
    bench.clock.advance(MINUTE);
    let mut create = Create { lifetime: Some(MINUTE), ..sample::create() };
    create.spec.env.insert("WHO".to_owned(), "me".to_owned());
    create.spec.metadata.insert("k".to_owned(), "v".to_owned());
    let sandbox = bench.create_from(create.clone()).await;
    assert!(stock.contains(&sandbox.id), "it came from stock");
    assert_eq!(sandbox.spec, create.spec);
    assert_eq!((&sandbox.tenant, &sandbox.stock_of), (&bench.tenant, &None));
    let now = sample::NOW.saturating_add(MINUTE);
    assert_eq!(sandbox.created_at, now);
    assert_eq!(sandbox.life.deadline().unwrap().at, now.saturating_add(MINUTE));
    assert_eq!(bench.at_rest(&sandbox.id).await.life.phase(), Phase::Running);
    assert_eq!(bench.machine.told(&sandbox.id).unwrap().spec.env, create.spec.env);
    let status = bench.stocked("warm", 2).await;
    assert_eq!((status.hits, status.misses), (1, 0));
    assert_eq!(bench.engine.stats().claims.count, 1);
    assert_eq!(bench.engine.stats().creates, 1);
    bench.machine_holds(3).await;
}

#[tokio::test(start_paused = true)]
async fn stock_of_another_shape_is_left_alone_unless_its_pool_is_named() {
    let bench = Bench::new().await;
    bench.pool("warm", 1).await;
    let stock = bench.machine.sandboxes()[0].0.clone();
    let other = script("echo mine; sleep 9");
    let cold = bench.create_from(other.clone()).await;
    assert_ne!(cold.id, stock);
    let named = Claim { pool: Some("warm".to_owned()), ..Claim::default() };
    let hot = bench.create_from(Create { claim: named, ..other }).await;
    assert_eq!(hot.id, stock);
    bench.at_rest(&hot.id).await;
    let status = bench.stocked("warm", 1).await;
    assert_eq!((status.hits, status.replaced), (0, 1), "its place was taken, not what was in it");
    assert_eq!(bench.engine.stats().claims.count, 0);
    assert_eq!(bench.engine.logs(&bench.tenant, &hot.id, 99).await.unwrap().bytes, b"mine\n");
}

#[tokio::test(start_paused = true)]
async fn without_stock_a_creation_is_made_from_nothing_or_refused_or_waits() {
    let bench = Bench::new().await;
    let nothing = bench.engine.create(&bench.tenant, claim("warm", MINUTE)).await.unwrap_err();
    assert_eq!((nothing.kind(), nothing.reason()), (ErrorKind::NotFound, Some("NO_POOL")));
    let anyway = Claim { pool: Some("warm".to_owned()), ..Claim::default() };
    bench.create_from(Create { claim: anyway.clone(), ..sample::create() }).await;

    bench.machine.hold(Action::Create);
    bench.engine.set_pool(sample::pool("warm", 1)).await.unwrap();
    bench.create_from(Create { claim: anyway, ..sample::create() }).await;
    let error = bench.engine.create(&bench.tenant, claim("warm", MINUTE)).await.unwrap_err();
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Exhausted, Some("NO_STOCK")));
    for part in ["warm", "size 1", "1 being made", "from nothing"] {
        assert!(error.message().contains(part), "{error}");
    }
    let (engine, tenant) = (bench.engine.clone(), bench.tenant.clone());
    let waits = tokio::spawn(async move { engine.create(&tenant, claim("warm", PATIENCE)).await });
    eventually("somebody waits", async || {
        bench.status("warm").await.filter(|status| status.waiting == 1)
    })
    .await;
    bench.machine.release();
    let sandbox = waits.await.unwrap().unwrap();
    assert_eq!(bench.at_rest(&sandbox.id).await.life.phase(), Phase::Running);
    let status = bench.stocked("warm", 1).await;
    assert_eq!((status.hits, status.misses, status.waiting), (1, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_an_emptied_pool_are_told_at_once() {
    let bench = Bench::new().await;
    bench.machine.hold(Action::Create);
    bench.engine.set_pool(sample::pool("warm", 1)).await.unwrap();
    let (engine, tenant) = (bench.engine.clone(), bench.tenant.clone());
    let waits = tokio::spawn(async move { engine.create(&tenant, claim("warm", PATIENCE)).await });
    eventually("somebody waits", async || {
        bench.status("warm").await.filter(|status| status.waiting == 1)
    })
    .await;
    bench.engine.remove_pool("warm").await.unwrap();
    let error = waits.await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some("NO_STOCK"));
    bench.machine.release();
    bench.machine_holds(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_claims_gets_each_sandbox_once() {
    let bench = Bench::new().await;
    bench.pool("warm", 5).await;
    let claims: Vec<_> = (0..100)
        .map(|number| {
            let engine = bench.engine.clone();
            let tenant = sample::tenant(&format!("t{}", number % 7));
            let mut create = claim("warm", PATIENCE);
            create.spec.env.insert("WHO".to_owned(), number.to_string());
            tokio::spawn(async move {
                let made = engine.create_and_wait(&tenant, create.clone(), PATIENCE).await.unwrap();
                (made, create.spec.env)
            })
        })
        .collect();
    let mut ids = BTreeSet::new();
    for claim in claims {
        let (sandbox, env) = claim.await.unwrap();
        assert_eq!(sandbox.life.phase(), Phase::Running);
        assert_eq!(bench.machine.told(&sandbox.id).unwrap().spec.env, env);
        assert!(ids.insert(sandbox.id.clone()), "{} was given twice", sandbox.id);
    }
    bench.stocked("warm", 5).await;
    bench.machine_holds(105).await;
    assert_eq!(bench.machine.tally().shared, 0);
}

#[tokio::test(start_paused = true)]
async fn tenants_take_turns() {
    let bench = Bench::new().await;
    bench.machine.hold(Action::Create);
    bench.engine.set_pool(sample::pool("warm", 1)).await.unwrap();
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut claims = Vec::new();
    for (place, tenant) in ["greedy", "greedy", "greedy", "modest"].into_iter().enumerate() {
        let (engine, order) = (bench.engine.clone(), order.clone());
        claims.push(tokio::spawn(async move {
            let tenant = sample::tenant(tenant);
            engine.create(&tenant, claim("warm", PATIENCE)).await.unwrap();
            order.lock().unwrap().push(tenant.to_string());
        }));
        eventually("the caller waits", async || {
            bench.status("warm").await.filter(|status| status.waiting == place + 1)
        })
        .await;
    }
    bench.machine.release();
    for claim in claims {
        claim.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), ["greedy", "modest", "greedy", "greedy"]);
}

#[tokio::test(start_paused = true)]
async fn the_quota_holds_for_claims() {
    let config = EngineConfig { sandboxes_per_tenant_max: 1, ..EngineConfig::default() };
    let bench = Bench::with(config).await;
    bench.pool("warm", 2).await;
    bench.create().await;
    let error = bench.engine.create(&bench.tenant, claim("warm", MINUTE)).await.unwrap_err();
    assert_eq!(error.reason(), Some("QUOTA_EXCEEDED"));
    bench.stocked("warm", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_not_written_costs_the_sandbox_and_gives_it_to_nobody() {
    let bench = Bench::new().await;
    bench.pool("warm", 1).await;
    let stock = bench.machine.sandboxes()[0].0.clone();
    bench.disk.set_full(true);
    let error = bench.engine.create(&bench.tenant, sample::create()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    bench.disk.set_full(false);
    eventually("the pool is full again, without it", async || {
        bench.clock.advance(Duration::from_secs(2));
        let status = bench.status("warm").await?;
        let there = bench.machine.sandboxes();
        let fresh = there.len() == 1 && there[0].0 != stock;
        (status.ready == 1 && fresh).then_some(())
    })
    .await;
    assert_eq!(bench.machine.tally().shared, 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_a_crash_interrupted_is_never_stock_again() {
    let mut bench = Bench::new().await;
    bench.pool("warm", 1).await;
    let stock = bench.machine.sandboxes()[0].0.clone();
    eventually("the stock is on disk", async || (bench.stock_on_disk() == 1).then_some(())).await;
    bench.disk.hold();
    let (engine, tenant) = (bench.engine.clone(), bench.tenant.clone());
    let mut create = sample::create();
    create.spec.env.insert("SECRET".to_owned(), "x".to_owned());
    let claim = tokio::spawn(async move { engine.create(&tenant, create).await });
    eventually("the sandbox knows the secret", async || {
        let told = bench.machine.told(&stock)?;
        told.spec.env.contains_key("SECRET").then_some(())
    })
    .await;
    // The engine goes away before the claim is on disk: there it is still stock.
    claim.abort();
    let disk = bench.disk.crash();
    bench.disk = disk;
    bench.replace_engine().await;
    bench.stocked("warm", 1).await;
    assert!(bench.machine.told(&stock).is_none(), "what knows a secret is removed");
    let mine = bench.create().await;
    assert_ne!(mine.id, stock);
    assert_eq!(bench.machine.tally().shared, 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_durable_but_was_not_told_is_told_after_a_crash() {
    let mut bench = Bench::new().await;
    bench.pool("warm", 1).await;
    bench.machine.hold(Action::Create);
    let mut create = sample::create();
    create.spec.env.insert("WHO".to_owned(), "me".to_owned());
    let id = bench.create_from(create.clone()).await.id.clone();
    assert_ne!(bench.machine.told(&id).unwrap().spec.env, create.spec.env);
    bench.replace_engine().await;
    bench.machine.release();
    bench.reaches(&id, Phase::Running).await;
    assert_eq!(bench.machine.told(&id).unwrap().spec.env, create.spec.env);
}
