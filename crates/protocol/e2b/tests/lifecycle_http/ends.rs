//! Every sandbox has an end, whatever happens to it and by whichever door.

use std::time::Duration;

use atoll_control::{Control as _, Create, Filter, Paging};
use atoll_core::{Action, Aging, Deadline, Expiry, Keep, Phase, SandboxId};
use atoll_e2b::lifecycle::DoorConfig;
use atoll_engine::Clock as _;
use atoll_testkit::{eventually, sample};
use serde_json::{Value, json};

use crate::world::{World, new_sandbox, request};

const KRUISE: &str = "e2b.agents.kruise.io/";

async fn deadline(world: &World, id: &str) -> Option<Deadline> {
    let id = SandboxId::parse(id).unwrap();
    world.engine.get(&sample::tenant("alice"), &id).await.unwrap().life.deadline()
}

async fn count(world: &World) -> usize {
    let paging = Paging { skip: 0, take: 10 };
    let page = world.engine.list(&sample::tenant("alice"), &Filter::default(), paging).await;
    page.unwrap().total
}

#[tokio::test]
async fn a_timeout_that_passes_during_a_pause_ends_nothing() {
    let world = World::new().await;
    let id = world.create_id(json!({"timeout": 60})).await;
    let begun = world.sim.tally().begun;
    world.sim.hold(Action::Pause);
    let path = format!("/sandboxes/{id}/pause");
    let pausing = world.ask("POST", &path, Value::Null);
    let passing = async {
        eventually("the pause begins", async || (world.sim.tally().begun > begun).then_some(()))
            .await;
        world.clock.advance(Duration::from_secs(61));
        world.sim.release();
    };
    let (paused, ()) = tokio::join!(pausing, passing);
    paused.expect(204);
    assert_eq!(world.detail(&id).await["state"], "paused");
}

#[tokio::test]
async fn a_pause_that_fails_leaves_a_sandbox_with_an_end() {
    let world = World::new().await;
    let id = world.create_id(json!({"timeout": 60})).await;
    world.sim.fail_next(1, false);
    world.ask("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.error(503);
    assert_eq!(world.detail(&id).await["state"], "running");
    let at = world.clock.now().saturating_add(Duration::from_secs(60));
    assert_eq!(deadline(&world, &id).await, Some(Deadline { at, then: Expiry::Kill }));
}

#[tokio::test]
async fn another_doors_resumption_does_not_take_the_end_away() {
    let world = World::new().await;
    for (members, then) in [
        (json!({"timeout": 60}), Expiry::Kill),
        (json!({"timeout": 60, "autoPause": true}), Expiry::Pause(Keep::Memory)),
    ] {
        let id = world.create_id(members).await;
        world.ask("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.expect(204);
        assert_eq!(deadline(&world, &id).await, None);
        world.clock.advance(Duration::from_secs(1000));
        let sandbox = SandboxId::parse(&id).unwrap();
        world.engine.resume(&sample::tenant("alice"), &sandbox, None).await.unwrap();
        let at = world.clock.now().saturating_add(Duration::from_secs(60));
        assert_eq!(deadline(&world, &id).await, Some(Deadline { at, then }));
    }
}

#[tokio::test]
async fn a_connection_to_another_doors_sandbox_keeps_its_end_or_that_it_has_none() {
    let world = World::new().await;
    let tenant = sample::tenant("alice");
    let then = Expiry::Pause(Keep::Memory);
    for lifetime in [None, Some(Duration::from_secs(60))] {
        let wanted = Create { lifetime, on_expiry: then, ..sample::create() };
        let made = world.engine.create_and_wait(&tenant, wanted, Duration::from_secs(60)).await;
        let id = made.unwrap().id.clone();
        world.engine.pause(&tenant, &id, Keep::Memory, Aging::Stops(None)).await.unwrap();
        world.engine.wait(&tenant, &id, Duration::from_secs(60)).await.unwrap();
        let connect = format!("/v2/sandboxes/{id}/connect");
        world.ask("POST", &connect, json!({"timeout": 500})).await.expect(201);
        let at = world.clock.now().saturating_add(Duration::from_secs(500));
        let expected = lifetime.map(|_| Deadline { at, then });
        assert_eq!(deadline(&world, id.as_str()).await, expected);
    }
}

#[tokio::test]
async fn a_client_that_leaves_during_a_resumption_leaves_a_sandbox_with_an_end() {
    let world = World::new().await;
    let id = world.create_id(json!({"timeout": 60})).await;
    world.ask("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.expect(204);
    world.sim.hold(Action::Resume);
    let sandbox = SandboxId::parse(&id).unwrap();
    let phase = async |wanted: Phase| {
        eventually(&format!("it is {wanted:?}"), async || {
            let found = world.engine.get(&sample::tenant("alice"), &sandbox).await.unwrap();
            (found.life.phase() == wanted).then_some(())
        })
        .await;
    };
    let connect = format!("/v2/sandboxes/{id}/connect");
    let body = json!({"timeout": 500});
    tokio::select! {
        _ = world.send(request(crate::world::ALICE, "POST", &connect, &body)) => panic!("held"),
        () = phase(Phase::Resuming) => {}
    }
    world.sim.release();
    phase(Phase::Running).await;
    let at = world.clock.now().saturating_add(Duration::from_secs(500));
    assert_eq!(deadline(&world, &id).await.map(|d| d.at), Some(at));
}

#[tokio::test]
async fn a_failed_sandbox_is_kept_no_longer_than_any_other_may_live() {
    for (name, value, allowed, seconds) in [
        ("reserve-failed-sandbox", "true", false, Some(100)),
        ("reserve-failed-sandbox-for", "forever", false, Some(100)),
        ("reserve-failed-sandbox-for", "1h", false, Some(100)),
        ("reserve-failed-sandbox-for", "50s", false, Some(50)),
        ("reserve-failed-sandbox-for", "1h", true, Some(3600)),
        ("reserve-failed-sandbox-for", "forever", true, None),
    ] {
        let config = DoorConfig {
            timeout_max: Duration::from_secs(100),
            allow_no_expiry: allowed,
            ..DoorConfig::default()
        };
        let world = World::with(config).await;
        world.sim.fail_next(1, false);
        let options = json!({"metadata": {format!("{KRUISE}{name}"): value}, "timeout": 10});
        world.ask("POST", "/v2/sandboxes", new_sandbox(options)).await.error(500);
        let paging = Paging { skip: 0, take: 1 };
        let kept = world.engine.list(&sample::tenant("alice"), &Filter::default(), paging).await;
        let kept = kept.unwrap().items[0].life.deadline().map(|deadline| deadline.at);
        let after = |seconds| world.clock.now().saturating_add(Duration::from_secs(seconds));
        assert_eq!(kept, seconds.map(after), "{name}={value}");
    }
}

#[tokio::test]
async fn a_sandbox_that_is_not_ready_in_time_is_not_a_failed_one_to_keep() {
    let create_wait = Duration::from_millis(50);
    let world = World::with(DoorConfig { create_wait, ..DoorConfig::default() }).await;
    world.sim.hold(Action::Create);
    let options = json!({"metadata": {format!("{KRUISE}reserve-failed-sandbox"): "true"}});
    world.ask("POST", "/v2/sandboxes", new_sandbox(options)).await.error(504);
    eventually("it is removed", async || (count(&world).await == 0).then_some(())).await;
}

#[tokio::test]
async fn a_fork_does_not_answer_to_the_key_of_its_source() {
    let world = World::new().await;
    let body = new_sandbox(json!({}));
    let keyed = || {
        let mut request = request(crate::world::ALICE, "POST", "/v2/sandboxes", &body);
        request.headers_mut().insert("idempotency-key", "key".try_into().unwrap());
        request
    };
    let made = world.send(keyed()).await.expect(201);
    let source = format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap());
    let forks = world.ask("POST", &format!("{source}/fork"), Value::Null).await.expect(201);
    world.ask("DELETE", &source, Value::Null).await.expect(204);
    let again = world.send(keyed()).await.expect(201);
    assert_ne!(again["sandboxID"], forks[0]["sandbox"]["sandboxID"]);
}
