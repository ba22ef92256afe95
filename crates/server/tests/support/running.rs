//! A real server over the simulated runtime, and a small HTTP client.

use std::net::SocketAddr;

use atoll_server::{Config, Server};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const ALICE: &str = "alice-0123456789abcdef";
pub(crate) const BOB: &str = "bob-0123456789abcdef";

/// A server that ends with the test.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) data: TempDir,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|_| panic!("{} is no JSON: {:?}", self.status, self.bytes))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Status and code of an error, which must have a message too.
    #[allow(dead_code, reason = "not every test file looks at errors")]
    pub(crate) fn error(&self) -> (u16, String) {
        let body = self.json();
        assert!(body["message"].as_str().is_some_and(|m| !m.is_empty()), "{body}");
        (self.status.as_u16(), body["code"].as_str().unwrap_or_default().to_owned())
    }
}

pub(crate) fn config(data: &TempDir) -> Config {
    let text = format!(
        r#"
        listen = "127.0.0.1:0"
        data_dir = {:?}
        [[tenants]]
        name = "alice"
        keys = ["{ALICE}"]
        [[tenants]]
        name = "bob"
        keys = ["{BOB}"]
        [limits]
        allow_no_expiry = true
        sandboxes_per_tenant_max = 30
        [runtime]
        kind = "sim"
        "#,
        data.path()
    );
    Config::parse(&text).unwrap()
}

impl Running {
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap()).await
    }

    pub(crate) async fn start_in(data: TempDir) -> Self {
        let config = config(&data);
        Self::start_with(config, data).await
    }

    pub(crate) async fn start_with(config: Config, data: TempDir) -> Self {
        let server = Server::bind(config).await.unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self { address, data, stop: Some(stop), task }
    }

    /// Tells it to stop and waits until it has.
    pub(crate) async fn stop(mut self) -> TempDir {
        drop(self.stop.take());
        self.task.await.unwrap();
        self.data
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, bytes }
    }

    /// A request as Alice, with a JSON body unless that is null.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Value) -> Answer {
        self.ask_as(ALICE, method, path, body).await
    }

    pub(crate) async fn ask_as(&self, key: &str, method: &str, path: &str, body: Value) -> Answer {
        let mut request =
            Request::builder().method(method).uri(path).header("host", self.address.to_string());
        if !key.is_empty() {
            request = request.header("open-sandbox-api-key", key);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.send(request.body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, Value::Null).await
    }

    /// A running sandbox of Alice's.
    pub(crate) async fn create(&self, metadata: Value) -> String {
        let answer = self.ask("POST", "/v1/sandboxes", new_sandbox(metadata)).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text());
        let body = answer.json();
        assert_eq!(body["status"]["state"], "Running", "{body}");
        body["id"].as_str().unwrap().to_owned()
    }

    /// Asks again until `id` is in `state`.
    pub(crate) async fn until(&self, id: &str, state: &str) {
        for _ in 0..10_000 {
            let shown = self.get(&format!("/v1/sandboxes/{id}")).await.json();
            if shown["status"]["state"] == state {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{id} never became {state}");
    }
}

pub(crate) fn new_sandbox(metadata: Value) -> Value {
    json!({
        "image": {"uri": "base"},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": {"cpu": "1", "memory": "256Mi"},
        "timeout": 600,
        "metadata": metadata,
    })
}
