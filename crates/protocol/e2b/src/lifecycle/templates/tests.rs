//! The wire of template routes, over an engine with a simulated machine: nothing runs there, so
//! builds that need a command fail, and all else works.

use std::time::Duration;

use atoll_engine::{Engine, EngineConfig};
use atoll_runtime_sim::SimRuntime;
use atoll_template::{BuiltIn, TemplateConfig};
use atoll_testkit::{FaultyStore, ManualClock, sample};
use axum::body::{Body as RawBody, to_bytes};
use axum::http::Request;
use tower::ServiceExt as _;

use super::*;

const HASH: &str = "37dce8f5116cbbbf3f6fc0fc5c6f2d716419e7bdca04cdb1b8a0be87c9f4e49b";

#[derive(Default)]
struct Shelf(std::sync::Mutex<std::collections::BTreeMap<(&'static str, String), Vec<u8>>>);

#[async_trait::async_trait]
impl atoll_control::Documents for Shelf {
    async fn put(&self, kind: &'static str, key: &str, bytes: Vec<u8>) -> atoll_core::Result<()> {
        self.0.lock().unwrap().insert((kind, key.to_owned()), bytes);
        Ok(())
    }

    async fn remove(&self, kind: &'static str, key: &str) -> atoll_core::Result<()> {
        self.0.lock().unwrap().remove(&(kind, key.to_owned()));
        Ok(())
    }

    async fn all(&self, kind: &'static str) -> atoll_core::Result<Vec<(String, Vec<u8>)>> {
        let shelf = self.0.lock().unwrap();
        let of_kind = shelf.iter().filter(|((found, _), _)| *found == kind);
        Ok(of_kind.map(|((_, key), bytes)| (key.clone(), bytes.clone())).collect())
    }
}

struct World {
    app: Router,
    _uploads: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let clock = ManualClock::new(sample::NOW);
        let engine = Engine::start(
            EngineConfig::default(),
            SimRuntime::new(),
            FaultyStore::new(),
            clock.clone(),
        );
        let uploads = tempfile::tempdir().unwrap();
        let mut config = TemplateConfig::new(uploads.path());
        config.upload_bytes_max = 100;
        let service = TemplateService::start(
            config,
            Arc::new(engine.await.unwrap()),
            Arc::new(Shelf::default()),
            vec![BuiltIn::ready("base", "base")],
            Arc::new(|| sample::NOW),
        );
        let service = service.await.unwrap();
        let desk = Desk { service, config: Arc::new(DoorConfig::default()) };
        let open = Router::new().route("/templates/{id}/files/{hash}", put(files::receive));
        let app = routes().merge(open).with_state(desk);
        Self { app, _uploads: uploads }
    }

    async fn send(&self, tenant: &str, request: Request<RawBody>) -> (u16, Value) {
        let mut request = request;
        request.extensions_mut().insert(sample::tenant(tenant));
        let response = self.app.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { RawBody::empty() } else { RawBody::from(body.to_string()) };
        let request = Request::builder().method(method).uri(path).header("host", "box.test:1");
        self.send("acme", request.body(body).unwrap()).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, Value::Null).await
    }

    async fn put(&self, url: &str, length: Option<&str>, bytes: &'static str) -> u16 {
        let mut request = Request::builder().method("PUT").uri(url);
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        self.send("nobody", request.body(RawBody::from(bytes)).unwrap()).await.0
    }

    /// Asks for a build and starts it; answers the template, the build, and the last status.
    async fn build(&self, name: &str, steps: Value) -> (String, String, Value) {
        let (status, asked) = self.ask("POST", "/v3/templates", json!({ "name": name })).await;
        assert_eq!(status, 202, "{asked}");
        let (id, build) = (text(&asked["templateID"]), text(&asked["buildID"]));
        let body = json!({"fromImage": "e2bdev/base", "steps": steps, "force": false});
        let begun = self.ask("POST", &format!("/v2/templates/{id}/builds/{build}"), body).await;
        assert_eq!(begun, (202, Value::Null));
        let path = format!("/templates/{id}/builds/{build}/status?logsOffset=0&limit=100");
        let over = async {
            loop {
                let (status, shown) = self.get(&path).await;
                assert_eq!(status, 200, "{shown}");
                if !["waiting", "building"].contains(&shown["status"].as_str().unwrap()) {
                    return shown;
                }
                tokio::task::yield_now().await;
            }
        };
        let shown = tokio::time::timeout(Duration::from_secs(20), over).await.unwrap();
        (id, build, shown)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn env_step() -> Value {
    json!([{"type": "ENV", "args": ["A", "1"], "force": false, "forceUpload": null}])
}

#[tokio::test]
async fn a_build_is_asked_for_started_and_watched() {
    let world = World::new().await;
    let (id, build, shown) = world.build("App:v1", env_step()).await;
    assert_eq!((shown["status"].as_str(), shown.get("reason")), (Some("ready"), None));
    let entries = shown["logEntries"].as_array().unwrap();
    assert_eq!(entries.len(), shown["logs"].as_array().unwrap().len());
    assert!(entries.iter().all(|entry| entry["timestamp"].is_string() && entry["level"] == "info"));
    let status = format!("/templates/{id}/builds/{build}/status");
    let rest = world.get(&format!("{status}?logsOffset={}", entries.len())).await.1;
    assert_eq!(rest["logEntries"], json!([]), "a client that has all gets nothing");
    let one = world.get(&format!("{status}?logsOffset=1&limit=1")).await.1;
    assert_eq!(one["logEntries"], json!([entries[1]]));
    assert_eq!(world.get(&format!("{status}?limit=101")).await.0, 400);
    let errors = world.get(&format!("{status}?level=error")).await.1;
    assert_eq!(errors["logEntries"], json!([]));
    let logs = format!("/templates/{id}/builds/{build}/logs?direction=backward&limit=1");
    assert_eq!(world.get(&logs).await.1["logs"][0]["message"], "Build finished");
    assert_eq!(world.get("/templates/app/builds/none/status").await.0, 404);
}

#[tokio::test]
async fn a_failed_build_says_where() {
    let world = World::new().await;
    let steps = json!([{"type": "ENV", "args": ["A", "1"]}, {"type": "RUN", "args": ["make"]}]);
    let (.., shown) = world.build("app", steps).await;
    assert_eq!(shown["status"], "error");
    assert_eq!(shown["reason"]["step"], "2");
    assert!(!text(&shown["reason"]["message"]).is_empty());
    assert!(!shown["reason"]["logEntries"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn names_tags_and_lists() {
    let world = World::new().await;
    let (id, build, _) = world.build("app:v1", env_step()).await;
    for alias in ["app", "acme%2Fapp%3Av1", &id] {
        let (status, found) = world.get(&format!("/templates/aliases/{alias}")).await;
        assert_eq!((status, text(&found["templateID"])), (200, id.clone()), "{alias}");
    }
    for missing in ["nope", "app%3Av9", "other%2Fapp"] {
        let (status, error) = world.get(&format!("/templates/aliases/{missing}")).await;
        assert_eq!((status, &error["code"]), (404, &json!(404)), "{missing}");
    }
    let assign = json!({"target": "app:v1", "tags": ["prod"]});
    let (status, assigned) = world.ask("POST", "/templates/tags", assign).await;
    assert_eq!((status, assigned), (201, json!({"tags": ["prod"], "buildID": build})));
    let tags = world.get("/templates/app/tags").await.1;
    let names: Vec<String> = tags.as_array().unwrap().iter().map(|t| text(&t["tag"])).collect();
    assert_eq!(names, ["prod", "v1"]);
    assert_eq!(world.get("/templates/app/tags/count").await.1, json!({"total": 2}));
    let exists = world.get("/templates/app/tags/exists?tag=PROD").await.1;
    assert_eq!(exists, json!({"exists": true, "normalizedTag": "prod"}));
    let remove = |tag: &str| json!({"name": "app", "tags": [tag]});
    assert_eq!(world.ask("DELETE", "/templates/tags", remove("prod")).await.0, 204);
    assert_eq!(world.ask("DELETE", "/templates/tags", remove("default")).await.0, 400);
    let own = world.get("/templates?teamID=acme").await.1;
    assert_eq!(
        (own[0]["buildStatus"].as_str(), own[0]["buildID"].as_str()),
        (Some("ready"), Some(&*build))
    );
    assert_eq!(world.get("/templates?teamID=other").await.0, 403);
    assert_eq!(world.get("/v2/templates?limit=1").await.1, own);
    assert_eq!(world.get("/default-templates").await.1[0]["aliases"], json!(["base"]));
    let (_, shown) = world.get(&format!("/templates/{id}")).await;
    assert_eq!(shown["builds"][0]["buildID"], json!(build));
    let patched = world.ask("PATCH", "/v2/templates/app", json!({"public": false})).await;
    assert_eq!(patched, (200, json!({"names": ["acme/app"]})));
    assert_eq!(world.ask("PATCH", "/v2/templates/app", json!({"public": true})).await.0, 400);
    assert_eq!(world.ask("DELETE", &format!("/templates/{id}"), Value::Null).await.0, 204);
    assert_eq!(world.ask("DELETE", &format!("/templates/{id}"), Value::Null).await.0, 404);
    assert_eq!(world.ask("DELETE", "/templates/base", Value::Null).await.0, 403);
}

#[tokio::test]
async fn files_are_sent_to_the_url_that_was_given() {
    let world = World::new().await;
    let (_, asked) = world.ask("POST", "/v3/templates", json!({"name": "app"})).await;
    let path = format!("/templates/{}/files/{HASH}", text(&asked["templateID"]));
    let (status, first) = world.get(&path).await;
    assert_eq!((status, &first["present"]), (201, &json!(false)));
    let url = text(&first["url"]);
    let url = url.strip_prefix("http://box.test:1").expect(&url);
    assert_eq!(world.put(url, None, "abc").await, 411);
    assert_eq!(world.put(url, Some("4"), "abc").await, 400);
    assert_eq!(world.put(url, Some("101"), "abc").await, 413);
    assert_eq!(world.put(&format!("{url}0"), Some("3"), "abc").await, 403);
    assert_eq!(world.put(&path, Some("3"), "abc").await, 400);
    assert_eq!(world.get(&path).await.1["present"], json!(false));
    assert_eq!(world.put(url, Some("3"), "abc").await, 200);
    assert_eq!(world.get(&path).await.1["present"], json!(true));
    assert_eq!(world.get("/templates/app/files/short").await.0, 400);
    assert_eq!(world.get(&format!("/templates/none/files/{HASH}")).await.0, 404);
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let world = World::new().await;
    for (body, field) in [
        (json!({}), "name"),
        (json!({"name": "a b"}), "Invalid template reference"),
        (json!({"name": "a", "cpuCount": 3}), "cpuCount"),
        (json!({"name": "a", "memoryMB": -1}), "memoryMB"),
        (json!({"name": "a", "tags": "x"}), "tags"),
        (json!({"name": "a", "minFreeDiskMb": 5}), "minFreeDiskMb"),
    ] {
        let (status, error) = world.ask("POST", "/v3/templates", body.clone()).await;
        assert_eq!(status, 400, "{body}");
        assert!(text(&error["message"]).starts_with(field), "{body}: {error}");
    }
    let (_, asked) = world.ask("POST", "/v3/templates", json!({"name": "app"})).await;
    let path = format!("/v2/templates/app/builds/{}", text(&asked["buildID"]));
    for (body, field) in [
        (json!({}), "fromImage"),
        (json!({"fromImage": "a", "fromTemplate": "b"}), "fromTemplate"),
        (json!({"fromImage": "a", "steps": [{"type": "FLY", "args": []}]}), "steps[0]"),
        (json!({"fromImage": "a", "steps": [{"args": []}]}), "steps[0].type"),
        (json!({"fromImage": "a", "fromImageRegistry": {"type": "aws"}}), "fromImageRegistry.type"),
        (
            json!({"fromImage": "a", "fromImageRegistry": {"type": "registry"}}),
            "fromImageRegistry.username",
        ),
    ] {
        let (status, error) = world.ask("POST", &path, body.clone()).await;
        assert_eq!(status, 400, "{body}");
        assert!(text(&error["message"]).starts_with(field), "{body}: {error}");
    }
    for old in ["/templates", "/templates/app", "/templates/app/builds/x"] {
        let (status, error) = world.ask("POST", old, json!({})).await;
        assert_eq!((status, &error["code"]), (410, &json!(410)), "{old}");
    }
}
