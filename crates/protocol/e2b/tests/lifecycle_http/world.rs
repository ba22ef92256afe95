//! A door over an engine over a simulated machine, and a client.

use std::sync::Arc;

use atoll_control::{Control, Keys};
use atoll_e2b::lifecycle::{self, Directory, DoorConfig, DoorState, Turns};
use atoll_engine::{Clock as _, Engine, EngineConfig};
use atoll_proxy::Proxy;
use atoll_runtime_sim::SimRuntime;
use atoll_template::{BuiltIn, TemplateConfig, TemplateService};
use atoll_testkit::{FaultyStore, ManualClock, sample};
use atoll_vault::{Limits, Secrets};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::middleware::from_fn_with_state;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::agent::Inside;
use crate::beside::{MapDocuments, MapVolumes};

pub(crate) const ALICE: &str = "e2b_alice";
pub(crate) const BOB: &str = "e2b_bob";
const BODY_BYTES_MAX: usize = 1 << 20;

pub(crate) struct World {
    pub(crate) app: Router,
    pub(crate) engine: Engine,
    pub(crate) sim: Arc<SimRuntime>,
    pub(crate) clock: Arc<ManualClock>,
    _uploads: tempfile::TempDir,
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|_| panic!("{} is no JSON: {}", self.status, self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The body, after a look at the status.
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.bytes.is_empty() { Value::Null } else { self.json() }
    }

    /// The message of an error in the contract's form.
    pub(crate) fn error(&self, status: u16) -> String {
        let body = self.expect(status);
        assert_eq!(body["code"], json!(status), "{body}");
        body["message"].as_str().unwrap().to_owned()
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(DoorConfig::default()).await
    }

    pub(crate) async fn with(config: DoorConfig) -> Self {
        let (sim, clock) = (SimRuntime::new(), ManualClock::new(sample::NOW));
        let store = FaultyStore::new();
        let engine = Engine::start(EngineConfig::default(), sim.clone(), store, clock.clone());
        let engine = engine.await.unwrap();
        let control: Arc<dyn Control> = Arc::new(Inside::new(engine.clone()).await);
        let tenants = vec![sample::tenant("alice"), sample::tenant("bob")];
        let mut keys = Keys::new();
        keys.insert(ALICE, tenants[0].clone());
        keys.insert(BOB, tenants[1].clone());
        let time = clock.clone();
        let now: Arc<dyn Fn() -> _ + Send + Sync> = Arc::new(move || time.now());
        let documents = Arc::new(MapDocuments::default());
        let uploads = tempfile::tempdir().unwrap();
        let templates = TemplateService::start(
            TemplateConfig::new(uploads.path().to_owned()),
            control.clone(),
            documents.clone(),
            vec![BuiltIn::ready("base", "base")],
            now.clone(),
        );
        let templates = templates.await.unwrap();
        let secrets = Secrets::open(documents, Limits::default(), now.clone()).await.unwrap();
        let door = DoorState {
            control: control.clone(),
            templates,
            volumes: Arc::new(MapVolumes::default()),
            secrets: Arc::new(secrets),
            pools: Arc::new(engine.clone()),
            keys: Arc::new(keys),
            directory: Directory::new(control.clone(), Arc::new(tenants)),
            proxy: Proxy::new(control),
            config: Arc::new(config),
            now,
            turns: Turns::default(),
        };
        let app = lifecycle::router(door.clone())
            .fallback(lifecycle::no_route)
            .layer(from_fn_with_state(door, lifecycle::data_path));
        Self { app, engine, sim, clock, _uploads: uploads }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.app.clone().oneshot(request).await.unwrap().into_parts();
        let bytes = to_bytes(body, BODY_BYTES_MAX).await.unwrap().to_vec();
        Answer { status: parts.status.as_u16(), headers: parts.headers, bytes }
    }

    /// A request as Alice, with a JSON body unless that is null.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Value) -> Answer {
        self.send(request(ALICE, method, path, &body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, Value::Null).await
    }

    /// A running sandbox of Alice's, made with these members besides.
    pub(crate) async fn create(&self, members: Value) -> Value {
        self.ask("POST", "/v2/sandboxes", new_sandbox(members)).await.expect(201)
    }

    /// The same; only its id.
    pub(crate) async fn create_id(&self, members: Value) -> String {
        self.create(members).await["sandboxID"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn detail(&self, id: &str) -> Value {
        self.get(&format!("/sandboxes/{id}")).await.expect(200)
    }

    /// A request to a port of a sandbox.
    pub(crate) async fn reach(
        &self,
        (id, port): (&str, u16),
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        let port = port.to_string();
        let mut all = vec![("e2b-sandbox-id", id), ("e2b-sandbox-port", &port)];
        all.extend(headers);
        self.send(plain(method, path, &all)).await
    }
}

pub(crate) fn new_sandbox(members: Value) -> Value {
    let mut body = json!({"templateID": "base"});
    if let Value::Object(members) = members {
        body.as_object_mut().unwrap().extend(members);
    }
    body
}

pub(crate) fn request(key: &str, method: &str, path: &str, body: &Value) -> Request<Body> {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1:3000")
        .header("x-api-key", key)
        .body(body)
        .unwrap()
}

pub(crate) fn plain(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

/// A time of an answer, in seconds since the epoch.
pub(crate) fn seconds(value: &Value) -> i64 {
    value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second()
}

/// Whether this status is a success.
pub(crate) fn is_success(status: u16) -> bool {
    StatusCode::from_u16(status).unwrap().is_success()
}
