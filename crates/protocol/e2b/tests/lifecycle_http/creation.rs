//! Creations that are refused, fail, are repeated or abandoned.

use atoll_control::{Control as _, Filter, Paging};
use atoll_core::Action;
use atoll_testkit::{eventually, sample};
use axum::http::HeaderValue;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::world::{ALICE, World, new_sandbox, request};

async fn count(world: &World) -> usize {
    let paging = Paging { skip: 0, take: 10 };
    let page = world.engine.list(&sample::tenant("alice"), &Filter::default(), paging).await;
    page.unwrap().total
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused_by_name() {
    let world = World::new().await;
    for (members, named) in [
        (json!({"templateID": 5}), "templateID"),
        (json!({"timeout": 0}), "timeout"),
        (json!({"timeout": -5}), "timeout"),
        (json!({"timeout": 86_401}), "timeout"),
        (json!({"timeout": "60"}), "timeout"),
        (json!({"metadata": {"a": 1}}), "metadata.a"),
        (json!({"envVars": {"a=b": "x"}}), "envVars"),
        (json!({"envVars": []}), "envVars"),
        (json!({"mcp": {}}), "mcp"),
        (json!({"iam": {"tokens": {}}}), "iam"),
        (json!({"autoPauseMemory": false}), "autoPauseMemory"),
        (
            json!({"autoPause": true, "autoPauseMemory": false, "autoResume": {"enabled": true}}),
            "autoPauseMemory",
        ),
        (json!({"network": {"allowOut": ["1.1.1.1"]}}), "network.allowOut"),
        (json!({"network": {"denyOut": ["10.0.0.0/8"]}}), "network.denyOut"),
        (json!({"network": {"dnsServers": ["1.1.1.1"]}}), "network.dnsServers"),
        (json!({"network": {"egressProxy": {"address": "a:1"}}}), "network.egressProxy"),
        (json!({"network": {"rules": {"a.example": []}}}), "network.rules"),
        (json!({"network": {"httpsPorts": [443]}}), "network.httpsPorts"),
        (json!({"network": {"maskRequestHost": "a b"}}), "network.maskRequestHost"),
        (json!({"volumeMounts": [{"name": "none", "path": "/d"}]}), "volumeMounts"),
        (json!({"volumeMounts": [{"name": "v", "path": "d"}]}), "volumeMounts[0].path"),
        (json!({"volumeMounts": [{"name": "v", "path": "/a/../b"}]}), "volumeMounts[0].path"),
        (json!({"volumeMounts": [{"name": "v"}]}), "volumeMounts[0].path"),
        (json!({"templateID": "Bad Name"}), "Invalid template reference"),
    ] {
        let refused = world.ask("POST", "/v2/sandboxes", new_sandbox(members.clone())).await;
        let message = refused.error(400);
        assert!(message.contains(named), "{members}: {message}");
    }
    let unknown = new_sandbox(json!({"templateID": "nothing"}));
    let unknown = world.ask("POST", "/v2/sandboxes", unknown).await.error(404);
    assert!(unknown.contains("template 'nothing' not found"), "{unknown}");
    let gateway = new_sandbox(json!({"templateID": "mcp-gateway", "mcp": {}}));
    world.ask("POST", "/v2/sandboxes", gateway).await.error(404);
    let open = json!({"secure": false, "network": {"allowPublicTraffic": false}});
    let open = new_sandbox(open);
    assert!(world.ask("POST", "/sandboxes", open).await.error(400).contains("secure"));
    assert_eq!(count(&world).await, 0);
}

#[tokio::test]
async fn what_asks_for_nothing_special_is_accepted() {
    let world = World::new().await;
    let network = json!({
        "allowOut": [], "denyOut": [], "dnsServers": [], "egressProxy": null, "rules": {},
        "httpsPorts": [], "allowPublicTraffic": null,
    });
    let members = json!({"mcp": null, "iam": null, "network": network, "metadata": {}});
    let id = world.create_id(members).await;
    assert_eq!(world.detail(&id).await["allowInternetAccess"], true);
    let path = format!("/sandboxes/{id}/network");
    world.ask("PUT", &path, json!({})).await.expect(204);
    let closing = world.ask("PUT", &path, json!({"allow_internet_access": false})).await;
    assert!(closing.error(400).contains("allow_internet_access"));
    assert!(
        world.ask("PUT", &path, json!({"allowOut": ["x"]})).await.error(400).contains("allowOut")
    );

    for members in
        [json!({"allow_internet_access": false}), json!({"network": {"denyOut": ["0.0.0.0/0"]}})]
    {
        let id = world.create_id(members).await;
        assert_eq!(world.detail(&id).await["allowInternetAccess"], false);
        let path = format!("/sandboxes/{id}/network");
        world.ask("PUT", &path, json!({"allow_internet_access": false})).await.expect(204);
        world.ask("PUT", &path, json!({})).await.error(400);
    }
}

#[tokio::test]
async fn a_sandbox_that_does_not_come_up_is_removed_and_not_tried_again() {
    let world = World::new().await;
    world.sim.fail_next(1, false);
    let failed = world.ask("POST", "/v2/sandboxes", new_sandbox(json!({}))).await;
    failed.error(500);
    assert_eq!(failed.json()["error_code"], "sandbox_create_failed");
    assert_eq!(failed.headers["should-retry"], "false");
    eventually("it is gone", async || (count(&world).await == 0).then_some(())).await;

    world.sim.fail_next(1, false);
    let key = "e2b.agents.kruise.io/reserve-failed-sandbox";
    let kept = new_sandbox(json!({"metadata": {key: "true"}}));
    world.ask("POST", "/v2/sandboxes", kept).await.error(500);
    assert_eq!(count(&world).await, 1, "it stays to be looked at");
    assert_eq!(world.get("/v2/sandboxes").await.json(), json!([]));
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing_behind() {
    let world = World::new().await;
    world.sim.hold(Action::Create);
    let body = new_sandbox(json!({}));
    let asking = world.app.clone().oneshot(request(ALICE, "POST", "/v2/sandboxes", &body));
    let accepted = eventually("it is accepted", async || (count(&world).await == 1).then_some(()));
    tokio::select! {
        _ = asking => panic!("the creation is held"),
        () = accepted => {}
    }
    world.sim.release();
    eventually("it is gone", async || (count(&world).await == 0).then_some(())).await;
}

fn keyed(key: &str, body: &Value) -> axum::http::Request<axum::body::Body> {
    let mut request = request(ALICE, "POST", "/v2/sandboxes", body);
    request.headers_mut().insert("idempotency-key", HeaderValue::try_from(key).unwrap());
    request
}

#[tokio::test]
async fn a_repeated_creation_answers_with_the_same_sandbox() {
    let world = World::new().await;
    let body = new_sandbox(json!({"metadata": {"a": "1"}}));
    let first = world.send(keyed("key-1", &body)).await.expect(201);
    let again = world.send(keyed("key-1", &body)).await.expect(201);
    assert_eq!(first["sandboxID"], again["sandboxID"]);
    world.send(keyed("key-1", &new_sandbox(json!({})))).await.error(422);
    let other = world.send(keyed("key-2", &body)).await.expect(201);
    assert_ne!(first["sandboxID"], other["sandboxID"]);
    for bad in ["", "UPPER", "a b", &"x".repeat(256)] {
        assert!(world.send(keyed(bad, &body)).await.error(400).contains("Idempotency-Key"));
    }
    let path = format!("/sandboxes/{}", first["sandboxID"].as_str().unwrap());
    world.ask("DELETE", &path, Value::Null).await.expect(204);
    let fresh = world.send(keyed("key-1", &body)).await.expect(201);
    assert_ne!(first["sandboxID"], fresh["sandboxID"], "the key is free again");
}

#[tokio::test]
async fn a_key_is_taken_while_its_creation_is_under_way() {
    let world = World::new().await;
    world.sim.hold(Action::Create);
    let body = new_sandbox(json!({}));
    let asking = world.app.clone().oneshot(keyed("key", &body));
    let conflict = async {
        eventually("it is accepted", async || (count(&world).await == 1).then_some(())).await;
        world.send(keyed("key", &body)).await.error(409);
        world.sim.release();
    };
    let (made, ()) = tokio::join!(asking, conflict);
    assert_eq!(made.unwrap().status().as_u16(), 201);
    assert_eq!(count(&world).await, 1);
}
