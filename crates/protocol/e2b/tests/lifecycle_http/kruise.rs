//! Warm pools and the options of OpenKruise clients.

use atoll_control::{Pool, Pools as _};
use atoll_testkit::{eventually, sample};
use serde_json::{Value, json};

use crate::world::{World, new_sandbox};

const PREFIX: &str = "e2b.agents.kruise.io/";

fn with(options: &[(&str, &str)]) -> Value {
    let options = options.iter().map(|(name, value)| (format!("{PREFIX}{name}"), (*value).into()));
    json!({"metadata": Value::Object(options.collect())})
}

async fn stocked(world: &World, size: usize) {
    let pool = Pool { name: "demo".into(), spec: sample::spec("base"), size };
    world.engine.set_pool(pool).await.unwrap();
    eventually("stock", async || (world.engine.pools().await[0].ready == size).then_some(())).await;
}

#[tokio::test]
async fn a_template_that_names_a_pool_is_taken_from_its_stock() {
    let world = World::new().await;
    stocked(&world, 1).await;
    let members = json!({"templateID": "demo", "envVars": {"A": "1"}, "metadata": {"u": "a"}});
    let made = world.create(members).await;
    let shown = world.detail(made["sandboxID"].as_str().unwrap()).await;
    assert_eq!(shown["metadata"], json!({"u": "a"}));
    assert_eq!(world.engine.pools().await[0].hits, 1);
    let below = world.ask("POST", "/kruise/api/sandboxes", new_sandbox(json!({}))).await;
    below.expect(201);
    world.get("/kruise/api/health").await.expect(204);
}

#[tokio::test]
async fn without_stock_a_claim_waits_only_as_long_as_it_says() {
    let world = World::new().await;
    let pool = Pool { name: "demo".into(), spec: sample::spec("base"), size: 0 };
    world.engine.set_pool(pool).await.unwrap();
    let mut body = with(&[("claim-timeout-seconds", "1"), ("create-on-no-stock", "false")]);
    body["templateID"] = "demo".into();
    let refused = world.ask("POST", "/v2/sandboxes", new_sandbox(body)).await;
    assert!(refused.error(503).contains("demo"));
    assert_eq!(refused.json()["error_code"], "sandbox_capacity_unavailable");
    assert_eq!(refused.headers["should-retry"], "false");
    world.create(json!({"templateID": "demo"})).await;
}

#[tokio::test]
async fn options_are_taken_out_of_the_labels_and_labels_among_them_stay() {
    let world = World::new().await;
    let mut body = with(&[
        ("claim-timeout-seconds", "60"),
        ("wait-ready-timeout-seconds", "60"),
        ("create-on-no-stock", "true"),
        ("skip-init-runtime", "true"),
        ("image", "new-image:latest"),
        ("cpu-request", "500m"),
        ("cpu-limit", "3"),
        ("reserve-failed-sandbox", "true"),
        ("reserve-failed-sandbox-for", "1h30m"),
        ("reserve-paused-sandbox-duration", "24h"),
        ("return-sandbox-ip", "false"),
        ("label:team", "a"),
    ]);
    body["metadata"]["plain"] = "kept".into();
    let id = world.create_id(body).await;
    let shown = world.detail(&id).await;
    assert_eq!(shown["metadata"], json!({"plain": "kept", "team": "a"}));
    assert_eq!(shown["cpuCount"], 3);

    world.ask("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.expect(204);
    world.clock.advance(std::time::Duration::from_secs(24 * 3600 + 1));
    let path = format!("/sandboxes/{id}");
    eventually("its pause is over", async || (world.get(&path).await.status == 404).then_some(()))
        .await;
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused_by_name() {
    let world = World::new().await;
    for (name, value) in [
        ("claim-timeout-seconds", "0"),
        ("claim-timeout-seconds", "soon"),
        ("wait-ready-timeout-seconds", "-1"),
        ("create-on-no-stock", "perhaps"),
        ("image", ""),
        ("image", "a b"),
        ("cpu-limit", "many"),
        ("cpu-limit", "0"),
        ("csi-volume-config", "{}"),
        ("csi-volume-config", r#"[{"pvName":"v"}]"#),
        ("reserve-failed-sandbox-for", "1 hour"),
        ("reserve-paused-sandbox-duration", "x"),
        ("never-timeout", "true"),
        ("return-sandbox-ip", "true"),
        ("sandbox-name", "mine"),
        ("sandbox-generate-name", "mine-"),
        ("no-such-option", "x"),
        ("csi-subpath", "x"),
    ] {
        let body = new_sandbox(with(&[(name, value)]));
        let message = world.ask("POST", "/v2/sandboxes", body).await.error(400);
        let named = if name == "csi-subpath" { "csi-volume-name" } else { name };
        assert!(message.contains(&format!("{PREFIX}{named}")), "{name}={value}: {message}");
    }
    let half = new_sandbox(with(&[("csi-volume-name", "v")]));
    let half = world.ask("POST", "/v2/sandboxes", half).await.error(400);
    assert!(half.contains("csi-mount-point"), "{half}");
    let cpu = new_sandbox(with(&[("cpu-request", "2"), ("cpu-limit", "1")]));
    assert!(world.ask("POST", "/v2/sandboxes", cpu).await.error(400).contains("cpu-request"));
}

#[tokio::test]
async fn a_sandbox_without_an_end_has_none_if_the_operator_agrees() {
    let config = atoll_e2b::lifecycle::DoorConfig { allow_no_expiry: true, ..Default::default() };
    let world = World::with(config).await;
    let id = world.create_id(with(&[("never-timeout", "true")])).await;
    world.clock.advance(std::time::Duration::from_secs(1_000_000));
    let shown = world.detail(&id).await;
    assert!(shown["endAt"].as_str().unwrap().starts_with("9999"), "{shown}");
    let connect = format!("/v2/sandboxes/{id}/connect");
    world.ask("POST", &connect, Value::Null).await.expect(200);
    assert!(world.detail(&id).await["endAt"].as_str().unwrap().starts_with("9999"));
}
