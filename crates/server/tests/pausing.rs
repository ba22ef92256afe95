//! Pausing and resuming over HTTP, on a machine that does not always do as told.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Control, Keys};
use atoll_core::{Action, TenantId};
use atoll_engine::seam::WallClock;
use atoll_engine::{Clock, Engine, EngineConfig};
use atoll_opensandbox::lifecycle::{DoorConfig, DoorState, RouteSigner, router};
use atoll_proxy::Proxy;
use atoll_runtime_sim::SimRuntime;
use atoll_store::RedbStore;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

const KEY: &str = "a-key-of-this-test";

/// The door over a machine that the test may break.
struct Bench {
    machine: Arc<SimRuntime>,
    door: Router,
    engine: Engine,
}

impl Bench {
    async fn new(patience: Duration) -> Self {
        let machine = SimRuntime::new();
        let clock: Arc<dyn Clock> = Arc::new(WallClock);
        let store = Arc::new(RedbStore::in_memory().unwrap());
        let config = EngineConfig::default();
        let engine = Engine::start(config, machine.clone(), store, clock.clone()).await.unwrap();
        let control: Arc<dyn Control> = Arc::new(engine.clone());
        let mut keys = Keys::new();
        keys.insert(KEY, TenantId::parse("tenant").unwrap());
        let config = DoorConfig { create_wait: patience, ..DoorConfig::default() };
        let door = router(DoorState {
            control: control.clone(),
            keys: Arc::new(keys),
            proxy: Proxy::new(control),
            signer: Arc::new(RouteSigner::new("secret")),
            config: Arc::new(config),
            now: Arc::new(move || clock.now()),
        });
        Self { machine, door, engine }
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request = Request::builder()
            .method(method)
            .uri(format!("/v1/sandboxes{path}"))
            .header("open-sandbox-api-key", KEY)
            .body(body)
            .unwrap();
        let response = self.door.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn post(&self, path: &str) -> (u16, Value) {
        self.ask("POST", path, Value::Null).await
    }

    async fn state(&self, id: &str) -> String {
        let (_, shown) = self.ask("GET", &format!("/{id}"), Value::Null).await;
        shown["status"]["state"].as_str().unwrap().to_owned()
    }

    async fn until(&self, id: &str, state: &str) {
        for _ in 0..100_000 {
            if self.state(id).await == state {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{id} never became {state}");
    }

    async fn running(&self) -> String {
        let body = json!({
            "image": {"uri": "base"},
            "entrypoint": ["tail", "-f", "/dev/null"],
            "resourceLimits": {},
            "timeout": 600,
        });
        let (status, made) = self.ask("POST", "", body).await;
        assert_eq!(status, 202, "{made}");
        let id = made["id"].as_str().unwrap().to_owned();
        self.until(&id, "Running").await;
        id
    }
}

#[tokio::test]
async fn answers_come_when_it_is_done() {
    let bench = Bench::new(Duration::from_secs(60)).await;
    let id = bench.running().await;
    let (pause, resume) = (format!("/{id}/pause"), format!("/{id}/resume"));
    for round in 0..20 {
        let done = (202, Value::Null);
        assert_eq!(bench.post(&pause).await, done, "round {round}");
        assert_eq!(bench.state(&id).await, "Paused", "round {round}");
        assert_eq!(bench.post(&resume).await, done, "round {round}");
        assert_eq!(bench.state(&id).await, "Running", "round {round}");
        assert_eq!(bench.post(&pause).await, done, "round {round}");
        assert_eq!(bench.post(&resume).await, done, "round {round}");
    }
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn patience_that_runs_out_is_no_failure() {
    let bench = Bench::new(Duration::ZERO).await;
    let id = bench.running().await;
    for (action, verb, meanwhile, after) in [
        (Action::Pause, "pause", "Pausing", "Paused"),
        (Action::Resume, "resume", "Resuming", "Running"),
    ] {
        bench.machine.hold(action);
        assert_eq!(bench.post(&format!("/{id}/{verb}")).await, (202, Value::Null));
        assert_eq!(bench.state(&id).await, meanwhile);
        bench.machine.release();
        bench.until(&id, after).await;
    }
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn a_pause_that_cannot_be_done_says_why_and_leaves_it_running() {
    let bench = Bench::new(Duration::from_secs(60)).await;
    let id = bench.running().await;
    let pause = format!("/{id}/pause");
    bench.machine.fail_next(1, false);
    let (status, failed) = bench.post(&pause).await;
    assert_eq!((status, &failed["code"]), (500, &json!("DOCKER::SANDBOX_PAUSE_FAILED")));
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains(&id) && message.contains("machine refused"), "{message}");
    assert_eq!(bench.state(&id).await, "Running");
    assert_eq!(bench.post(&pause).await, (202, Value::Null), "it may be tried again");
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn a_resumption_that_cannot_be_done_says_why() {
    let bench = Bench::new(Duration::from_secs(60)).await;
    let id = bench.running().await;
    assert_eq!(bench.post(&format!("/{id}/pause")).await, (202, Value::Null));
    bench.machine.fail_next(1, false);
    let (status, failed) = bench.post(&format!("/{id}/resume")).await;
    assert_eq!((status, &failed["code"]), (500, &json!("DOCKER::SANDBOX_RESUME_FAILED")));
    assert!(failed["message"].as_str().unwrap().contains("machine refused"), "{failed}");
    assert_eq!(bench.state(&id).await, "Failed");
    bench.engine.shutdown().await;
}
