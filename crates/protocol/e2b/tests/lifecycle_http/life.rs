//! One sandbox from creation to its end.

use std::time::Duration;

use atoll_control::{Control as _, Create, Filter, Paging};
use atoll_core::{Action, ReadyCheck};
use atoll_e2b::lifecycle::DoorConfig;
use atoll_testkit::{eventually, sample};
use serde_json::{Value, json};

use crate::world::{ALICE, BOB, World, new_sandbox, request, seconds};

#[tokio::test]
async fn a_sandbox_lives_from_creation_to_its_end() {
    let world = World::new().await;
    let members = json!({"metadata": {"team": "a"}, "envVars": {"A": "1"}, "timeout": 600});
    let made = world.create(members).await;
    let id = made["sandboxID"].as_str().unwrap();
    assert!(made["templateID"].as_str().is_some_and(|id| !id.is_empty()));
    assert_eq!(made["alias"], "base");
    assert_eq!(made["envdVersion"], "0.6.13");
    assert_eq!(made["domain"], "localhost:3000");
    assert!(made["clientID"].is_string());
    assert!(made["envdAccessToken"].as_str().unwrap().len() >= 32);
    assert!(made["trafficAccessToken"].is_null(), "its ports are open to the public");

    let shown = world.detail(id).await;
    for name in ["cpuCount", "memoryMB", "diskSizeMB"] {
        assert!(shown[name].as_u64().unwrap() > 0, "{name}: {shown}");
    }
    assert_eq!(shown["state"], "running");
    assert_eq!(shown["metadata"], json!({"team": "a"}));
    assert_eq!(shown["envdAccessToken"], made["envdAccessToken"]);
    assert_eq!(shown["lifecycle"], json!({"autoResume": false, "onTimeout": "kill"}));
    assert_eq!(shown["volumeMounts"], json!([]));
    assert_eq!(seconds(&shown["endAt"]) - seconds(&shown["startedAt"]), 600);
    assert_eq!(world.detail(&format!("{id}-suffix")).await["sandboxID"], id);

    let path = format!("/sandboxes/{id}");
    world.ask("DELETE", &path, Value::Null).await.expect(204);
    world.get(&path).await.error(404);
    world.ask("DELETE", &path, Value::Null).await.error(404);
}

#[tokio::test]
async fn the_two_generations_differ_in_how_long_a_sandbox_lives() {
    let world = World::new().await;
    for (path, lifetime) in [("/sandboxes", 15), ("/v2/sandboxes", 300)] {
        let made = world.ask("POST", path, new_sandbox(json!({}))).await.expect(201);
        let shown = world.detail(made["sandboxID"].as_str().unwrap()).await;
        assert_eq!(seconds(&shown["endAt"]) - seconds(&shown["startedAt"]), lifetime, "{path}");
    }
}

#[tokio::test]
async fn timeouts_move_both_ways_and_refreshes_only_one() {
    let world = World::new().await;
    let id = world.create_id(json!({"timeout": 600})).await;
    let left = async || {
        let shown = world.detail(&id).await;
        seconds(&shown["endAt"]) - seconds(&shown["startedAt"])
    };
    let timeout = format!("/sandboxes/{id}/timeout");
    world.ask("POST", &timeout, json!({"timeout": 100})).await.expect(204);
    assert_eq!(left().await, 100);
    let refresh = format!("/sandboxes/{id}/refreshes");
    world.ask("POST", &refresh, json!({"duration": 50})).await.expect(204);
    assert_eq!(left().await, 100, "a refresh never shortens");
    world.ask("POST", &refresh, json!({"duration": 200})).await.expect(204);
    assert_eq!(left().await, 200);
    world.ask("POST", &refresh, json!({"duration": 3601})).await.error(400);
    assert!(world.ask("POST", &timeout, json!({})).await.error(400).contains("timeout"));
    let long = json!({"timeout": 86_401});
    assert!(world.ask("POST", &timeout, long).await.error(400).contains("86400"));
    world.ask("POST", &timeout, json!({"timeout": -1})).await.expect(204);
    world.clock.advance(Duration::from_secs(1));
    let path = format!("/sandboxes/{id}");
    eventually("it ends", async || (world.get(&path).await.status == 404).then_some(())).await;
}

#[tokio::test]
async fn a_connection_never_shortens_a_life_and_resumes_what_is_paused() {
    let world = World::new().await;
    let made = world.create(json!({"timeout": 600})).await;
    let id = made["sandboxID"].as_str().unwrap();
    for (path, body) in [
        (format!("/v2/sandboxes/{id}/connect"), Value::Null),
        (format!("/sandboxes/{id}/connect"), json!({"timeout": 100})),
    ] {
        let connected = world.ask("POST", &path, body).await.expect(200);
        assert_eq!(connected["envdAccessToken"], made["envdAccessToken"]);
        let shown = world.detail(id).await;
        assert_eq!(seconds(&shown["endAt"]) - seconds(&shown["startedAt"]), 600);
    }
    let old = format!("/sandboxes/{id}/connect");
    assert!(world.ask("POST", &old, json!({})).await.error(400).contains("timeout"));

    world.ask("POST", &format!("/sandboxes/{id}/pause"), json!({})).await.expect(204);
    world.clock.advance(Duration::from_secs(10_000));
    assert_eq!(world.detail(id).await["state"], "paused", "what is paused doesn't age");
    let connect = format!("/v2/sandboxes/{id}/connect");
    let connected = world.ask("POST", &connect, json!({"timeout": 50})).await.expect(201);
    assert_eq!(connected["sandboxID"], made["sandboxID"]);
    assert_eq!(connected["envdAccessToken"], made["envdAccessToken"]);
    let shown = world.detail(id).await;
    assert_eq!(shown["state"], "running");
    assert_eq!(seconds(&shown["endAt"]) - seconds(&shown["startedAt"]), 10_050);
    world.ask("POST", "/v2/sandboxes/unknown/connect", json!({})).await.error(404);
}

#[tokio::test]
async fn a_pause_happens_once_and_says_what_it_keeps() {
    let world = World::new().await;
    let id = world.create_id(json!({})).await;
    let pause = format!("/sandboxes/{id}/pause");
    let files = json!({"memory": false, "requireHealthyGuest": true});
    world.ask("POST", &pause, files).await.expect(204);
    let shown = world.detail(&id).await;
    assert_eq!((&shown["state"], &shown["pauseMode"]), (&json!("paused"), &json!("filesystem")));
    world.ask("POST", &pause, Value::Null).await.error(409);
    world.ask("POST", &format!("/sandboxes/{id}/timeout"), json!({"timeout": 9})).await.error(409);
    world.ask("POST", &format!("/sandboxes/{id}/fork"), Value::Null).await.error(409);

    let resume = format!("/sandboxes/{id}/resume");
    world.ask("POST", &resume, json!({"timeout": 60})).await.expect(201);
    world.ask("POST", &resume, Value::Null).await.error(409);
    world.ask("POST", &pause, Value::Null).await.expect(204);
    assert_eq!(world.detail(&id).await["pauseMode"], "full");
    let connect = format!("/v2/sandboxes/{id}/connect");
    world.ask("POST", &connect, json!({"memory": false})).await.expect(201);
    let shown = world.detail(&id).await;
    assert_eq!(shown["state"], "running", "it was started anew from its files");
    world.ask("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.expect(204);
    world.ask("POST", &pause, Value::Null).await.error(404);
}

#[tokio::test]
async fn copies_are_given_the_time_that_their_check_may_take() {
    let config = DoorConfig { create_wait: Duration::ZERO, ..DoorConfig::default() };
    let (world, alice) = (World::with(config).await, sample::tenant("alice"));
    let (every, within) = (Duration::from_secs(1), Duration::from_secs(60));
    let mut spec = sample::spec("base");
    spec.ready = Some(ReadyCheck { command: "true".into(), every, within });
    let source = world.engine.create_and_wait(&alice, Create::new(spec), within).await.unwrap();
    world.sim.hold(Action::Create);
    let path = format!("/sandboxes/{}/fork", source.id);
    let forking = world.ask("POST", &path, Value::Null);
    let releasing = async {
        let (filter, paging) = (Filter::default(), Paging { skip: 0, take: 10 });
        eventually("the copy is being made", async || {
            let page = world.engine.list(&alice, &filter, paging).await.unwrap();
            (page.total == 2).then_some(())
        })
        .await;
        world.sim.release();
    };
    let (made, ()) = tokio::join!(forking, releasing);
    let made = made.expect(201);
    assert!(made[0]["sandbox"]["sandboxID"].is_string(), "{made}");
}

#[tokio::test]
async fn a_sandbox_that_pauses_at_its_timeout_does_so_again_after_a_resumption() {
    let world = World::new().await;
    let id = world.create_id(json!({"autoPause": true, "timeout": 60})).await;
    let state = async |wanted: &str| {
        eventually(wanted, async || (world.detail(&id).await["state"] == wanted).then_some(()))
            .await;
    };
    for _ in 0..2 {
        assert_eq!(world.detail(&id).await["lifecycle"]["onTimeout"], "pause");
        world.clock.advance(Duration::from_secs(61));
        state("paused").await;
        let connect = format!("/v2/sandboxes/{id}/connect");
        world.ask("POST", &connect, json!({"timeout": 60})).await.expect(201);
        state("running").await;
    }
}

#[tokio::test]
async fn connections_at_the_same_time_share_one_resumption_and_keep_the_latest_end() {
    let world = World::new().await;
    let id = world.create_id(json!({})).await;
    world.ask("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.expect(204);
    let connect = format!("/v2/sandboxes/{id}/connect");
    let ask =
        async |timeout: u64| world.ask("POST", &connect, json!({"timeout": timeout})).await.status;
    let statuses = tokio::join!(ask(100), ask(900), ask(300));
    assert!([statuses.0, statuses.1, statuses.2].iter().all(|s| [200, 201].contains(s)));
    let shown = world.detail(&id).await;
    assert_eq!(seconds(&shown["endAt"]) - seconds(&shown["startedAt"]), 900);
}

#[tokio::test]
async fn tenants_do_not_see_each_other() {
    let world = World::new().await;
    let id = world.create_id(json!({})).await;
    let as_bob = async |method: &str, path: String, body: Value| {
        world.send(request(BOB, method, &path, &body)).await
    };
    for (method, path, body) in [
        ("GET", format!("/sandboxes/{id}"), Value::Null),
        ("DELETE", format!("/sandboxes/{id}"), Value::Null),
        ("POST", format!("/sandboxes/{id}/pause"), Value::Null),
        ("POST", format!("/v2/sandboxes/{id}/connect"), Value::Null),
        ("POST", format!("/sandboxes/{id}/timeout"), json!({"timeout": 5})),
        ("POST", format!("/sandboxes/{id}/snapshots"), json!({})),
        ("POST", format!("/sandboxes/{id}/fork"), json!({})),
        ("GET", format!("/sandboxes/{id}/metrics"), Value::Null),
        ("GET", format!("/v2/sandboxes/{id}/logs"), Value::Null),
        ("PUT", format!("/sandboxes/{id}/network"), json!({})),
    ] {
        as_bob(method, path.clone(), body).await.error(404);
    }
    assert_eq!(as_bob("GET", "/v2/sandboxes".into(), Value::Null).await.json(), json!([]));
    assert_eq!(world.detail(&id).await["state"], "running");
}

#[tokio::test]
async fn every_mistake_is_answered_in_json() {
    let world = World::new().await;
    let none = world.send(request("", "GET", "/v2/sandboxes", &Value::Null)).await;
    assert!(none.error(401).contains("X-API-KEY"));
    world.send(request("wrong", "GET", "/sandboxes/x", &Value::Null)).await.error(401);
    world.ask("PATCH", "/v2/sandboxes", Value::Null).await.error(405);
    world.get("/nowhere").await.error(404);
    world.get("/kruise/api/nowhere").await.error(404);
    world.get("/sandboxes/NO-ID").await.error(404);
    world.ask("POST", "/v2/sandboxes", Value::Null).await.error(400);
    let mut broken = request(ALICE, "POST", "/v2/sandboxes", &Value::Null);
    *broken.body_mut() = "{".into();
    assert!(world.send(broken).await.error(400).contains("body"));
    let mut large = request(ALICE, "POST", "/v2/sandboxes", &Value::Null);
    *large.body_mut() = vec![b' '; 2 << 20].into();
    assert!(world.send(large).await.error(400).contains("too large"));
}
