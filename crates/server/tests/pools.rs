//! Warm pools over HTTP.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "support/running.rs"]
mod running;

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use running::{ALICE, BOB, Running};
use serde_json::{Value, json};

/// Waits until the pool has `count` ready and makes no more.
async fn ready(server: &Running, name: &str, count: u64) -> Value {
    for _ in 0..1000 {
        let answer = server.ask("GET", "/atoll/v1/pools", Value::Null).await.json();
        let mut pools = answer["pools"].as_array().unwrap().iter();
        let full = |pool: &&Value| pool["ready"] == count && pool["starting"] == 0;
        if let Some(pool) = pools.find(|pool| pool["name"] == name).filter(full) {
            return pool.clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} never had {count} ready");
}

#[tokio::test]
async fn the_operator_declares_pools_and_creations_take_their_stock() {
    let server = Running::start().await;
    let body = json!({"template": "base", "size": 2});
    let made = server.ask("PUT", "/atoll/v1/pools/warm", body.clone()).await;
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!((&made.json()["template"], &made.json()["size"]), (&json!("base"), &json!(2)));
    ready(&server, "warm", 2).await;
    let wish = json!({"templateID": "base", "timeout": 60});
    let request = Request::post("/sandboxes")
        .header("host", server.address.to_string())
        .header("x-api-key", ALICE)
        .header("content-type", "application/json")
        .body(Body::from(wish.to_string()));
    let created = server.send(request.unwrap()).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let pool = ready(&server, "warm", 2).await;
    assert_eq!((&pool["hits"], &pool["misses"]), (&json!(1), &json!(0)), "{pool}");
    let metrics = server.ask_as("", "GET", "/metrics", Value::Null).await.text();
    for line in ["atoll_pool_hits_total{pool=\"warm\"} 1", "atoll_claim_seconds_count 1"] {
        assert!(metrics.lines().any(|have| have == line), "{line} in {metrics}");
    }
    for _ in 0..2 {
        let gone = server.ask("DELETE", "/atoll/v1/pools/warm", Value::Null).await;
        assert_eq!(gone.status, 204);
    }
    let answer = server.ask("GET", "/atoll/v1/pools", Value::Null).await.json();
    assert_eq!(answer, json!({"pools": []}));
    server.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_pool_is_said() {
    let server = Running::start().await;
    let good = json!({"template": "base", "size": 1});
    for (key, name, body, status, word) in [
        (BOB, "warm", good.clone(), 403, "operator"),
        ("", "warm", good.clone(), 401, "key"),
        (ALICE, "Warm!", good, 400, "name"),
        (ALICE, "warm", json!({"size": 1}), 400, "template"),
        (ALICE, "warm", json!({"template": "base"}), 400, "size"),
        (ALICE, "warm", json!({"template": "base", "size": -1}), 400, "size"),
        (ALICE, "warm", json!({"template": "base", "size": 5000}), 400, "size"),
        (ALICE, "warm", json!({"template": "nosuch", "size": 1}), 404, "nosuch"),
        (ALICE, "warm", Value::Null, 400, "body"),
    ] {
        let path = format!("/atoll/v1/pools/{name}");
        let answer = server.ask_as(key, "PUT", &path, body.clone()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert!(answer.text().contains(word), "{body}: {}", answer.text());
    }
    let bob = server.ask_as(BOB, "GET", "/atoll/v1/pools", Value::Null).await;
    assert_eq!(bob.error().0, 403);
    server.stop().await;
}
