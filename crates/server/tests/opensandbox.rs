//! The OpenSandbox door over HTTP, from outside.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/running.rs"]
mod running;

use atoll_server::Uplink;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use running::{ALICE, BOB, Running, new_sandbox};
use serde_json::{Value, json};

fn object_keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn a_sandbox_lives_from_creation_to_deletion() {
    let server = Running::start().await;
    let id = server.create(json!({"team": "a"})).await;
    let path = format!("/v1/sandboxes/{id}");

    let shown = server.get(&path).await.json();
    assert_eq!(shown["image"], json!({"uri": "base"}));
    assert_eq!(shown["entrypoint"], json!(["tail", "-f", "/dev/null"]));
    assert_eq!(shown["metadata"], json!({"team": "a"}));
    assert!(shown["createdAt"].as_str().unwrap().ends_with('Z'));
    assert!(object_keys(&shown).iter().all(|key| !shown[key].is_null()), "no nulls: {shown}");

    let patch = json!({"team": null, "role": "x"});
    let patched = server.ask("PATCH", &format!("{path}/metadata"), patch).await;
    assert_eq!(patched.json()["metadata"], json!({"role": "x"}));

    let renewed = json!({"expiresAt": "2099-01-01T00:00:00+00:00"});
    let renewed = server.ask("POST", &format!("{path}/renew-expiration"), renewed).await;
    assert_eq!(renewed.json(), json!({"expiresAt": "2099-01-01T00:00:00.000000Z"}));
    let past = json!({"expiresAt": "2001-01-01T00:00:00Z"});
    let past = server.ask("POST", &format!("{path}/renew-expiration"), past).await;
    assert_eq!(past.error(), (400, "DOCKER::INVALID_EXPIRATION".into()));

    let pause = format!("{path}/pause");
    assert_eq!(server.ask("POST", &pause, Value::Null).await.status, StatusCode::ACCEPTED);
    assert_eq!(server.get(&path).await.json()["status"]["state"], "Paused");
    let again = server.ask("POST", &pause, Value::Null).await;
    assert_eq!(again.error(), (409, "DOCKER::SANDBOX_NOT_RUNNING".into()));
    let resume = format!("{path}/resume");
    assert_eq!(server.ask("POST", &resume, Value::Null).await.status, StatusCode::ACCEPTED);
    assert_eq!(server.get(&path).await.json()["status"]["state"], "Running");
    let again = server.ask("POST", &resume, Value::Null).await;
    assert_eq!(again.error(), (409, "DOCKER::SANDBOX_NOT_PAUSED".into()));

    assert_eq!(server.ask("DELETE", &path, Value::Null).await.status, StatusCode::NO_CONTENT);
    let gone = server.ask("DELETE", &path, Value::Null).await;
    assert_eq!(gone.error(), (404, "DOCKER::SANDBOX_NOT_FOUND".into()));
    server.stop().await;
}

#[tokio::test]
async fn a_sandbox_without_an_end_has_no_expiry_to_renew() {
    let server = Running::start().await;
    let mut body = new_sandbox(json!({}));
    body["timeout"] = Value::Null;
    let made = server.ask("POST", "/v1/sandboxes", body).await.json();
    assert!(made.get("expiresAt").is_none(), "{made}");
    let path = format!("/v1/sandboxes/{}/renew-expiration", made["id"].as_str().unwrap());
    let renewed = server.ask("POST", &path, json!({"expiresAt": "2099-01-01T00:00:00Z"})).await;
    assert_eq!(renewed.error(), (409, "DOCKER::INVALID_EXPIRATION".into()));
    server.stop().await;
}

#[tokio::test]
async fn a_sandbox_whose_entrypoint_fails_says_why_and_stays_readable() {
    let server = Running::start().await;
    let mut body = new_sandbox(json!({}));
    body["entrypoint"] = json!(["sh", "-c", "echo broken; exit 3"]);
    let made = server.ask("POST", "/v1/sandboxes", body).await;
    assert_eq!(made.status, StatusCode::ACCEPTED, "it was made; then it failed");
    let id = made.json()["id"].as_str().unwrap().to_owned();
    server.until(&id, "Failed").await;
    let shown = server.get(&format!("/v1/sandboxes/{id}")).await.json();
    assert_eq!(shown["status"]["reason"], "ENTRYPOINT_EXITED");
    let endpoint = server.get(&format!("/v1/sandboxes/{id}/endpoints/44772")).await;
    assert_eq!(endpoint.error(), (409, "DOCKER::SANDBOX_NOT_RUNNING".into()));
    let detail = server.get(&format!("/atoll/v1/sandboxes/{id}")).await.json();
    assert_eq!(detail["diagnostic"]["reason"], "ENTRYPOINT_EXITED");
    assert!(detail["timeline"].as_array().unwrap().len() > 1);
    server.stop().await;
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let server = Running::start().await;
    for n in 0..5 {
        server.create(json!({"n": n.to_string(), "all": "yes"})).await;
    }
    let page = server.get("/v1/sandboxes?page=2&pageSize=2&metadata=all%3Dyes").await.json();
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    assert_eq!(page["items"][0]["metadata"]["n"], "2", "newest first");
    let expected = json!({
        "page": 2, "pageSize": 2, "totalItems": 5, "totalPages": 3, "hasNextPage": true,
    });
    assert_eq!(page["pagination"], expected);
    for (query, total) in [
        ("state=running", 5),
        ("state=Paused&state=RUNNING", 5),
        ("state=Paused", 0),
        ("state=nonsense", 0),
        ("metadata=n%3D3", 1),
        ("metadata=n%3D3%26all%3Dno", 0),
        ("page=99", 5),
    ] {
        let page = server.get(&format!("/v1/sandboxes?{query}")).await.json();
        assert_eq!(page["pagination"]["totalItems"], total, "{query}");
    }
    let bad = server.get("/v1/sandboxes?metadata=novalue").await;
    assert_eq!(bad.error(), (400, "INVALID_METADATA_FORMAT".into()));
    for query in ["page=0", "page=x", "pageSize=0", "pageSize=201"] {
        let bad = server.get(&format!("/v1/sandboxes?{query}")).await;
        assert_eq!(bad.error(), (422, "VALIDATION_ERROR".into()), "{query}");
    }
    server.stop().await;
}

#[tokio::test]
async fn tenants_see_nothing_of_each_other() {
    let server = Running::start().await;
    let id = server.create(json!({})).await;
    for (method, tail) in [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("GET", "/endpoints/80"),
        ("GET", "/proxy/44772/ping"),
        ("GET", "/proxy/18080/policy"),
        ("GET", "/diagnostics/logs"),
        ("GET", "/networkpolicy"),
    ] {
        let path = format!("/v1/sandboxes/{id}{tail}");
        let answer = server.ask_as(BOB, method, &path, Value::Null).await;
        assert_eq!(answer.error(), (404, "DOCKER::SANDBOX_NOT_FOUND".into()), "{path}");
        let nobody = server.ask_as("", method, &path, Value::Null).await;
        assert_eq!(nobody.error(), (401, "MISSING_API_KEY".into()), "{path}");
        assert!(nobody.text().contains("OPEN-SANDBOX-API-KEY"), "{}", nobody.text());
        let stranger = server.ask_as("wrong", method, &path, Value::Null).await;
        assert_eq!(stranger.error(), (401, "INVALID_API_KEY".into()), "{path}");
    }
    let list = server.ask_as(BOB, "GET", "/v1/sandboxes", Value::Null).await.json();
    assert_eq!(list["pagination"]["totalItems"], 0);
    server.stop().await;
}

/// Path of an endpoint answer, which must name this server.
fn path_of(server: &Running, endpoint: &Value) -> String {
    let text = endpoint["endpoint"].as_str().unwrap();
    text.strip_prefix(&server.address.to_string()).unwrap().to_owned()
}

#[tokio::test]
async fn every_kind_of_endpoint_reaches_the_agent_and_nothing_else_does() {
    let server = Running::start().await;
    let id = server.create(json!({})).await;
    let endpoints = format!("/v1/sandboxes/{id}/endpoints/44772");

    let direct = path_of(&server, &server.get(&endpoints).await.json());
    assert!(direct.ends_with("/44772"), "{direct}");
    let ping = server.ask_as("", "GET", &format!("{direct}/ping"), Value::Null).await;
    assert_eq!(ping.status, StatusCode::OK);
    let forged = direct.replace("/44772", "0/44772");
    let forged = server.ask_as("", "GET", &format!("{forged}/ping"), Value::Null).await;
    assert_eq!(forged.error(), (404, "DOCKER::SANDBOX_NOT_FOUND".into()));

    let proxied = server.get(&format!("{endpoints}?use_server_proxy=true")).await.json();
    let path = path_of(&server, &proxied);
    assert_eq!(path, format!("/v1/sandboxes/{id}/proxy/44772"));
    for name in ["OpenSandbox-Secure-Access", "X-EXECD-ACCESS-TOKEN"] {
        let token = proxied["headers"][name].as_str().unwrap();
        for (value, status) in [(token, 200), (&token[1..], 404), ("wrong", 404)] {
            let ping = Request::get(format!("{path}/ping")).header(name, value);
            let answer = server.send(ping.body(Body::empty()).unwrap()).await;
            assert_eq!(answer.status.as_u16(), status, "{name}");
        }
    }
    assert_eq!(server.get(&format!("{path}/ping")).await.status, StatusCode::OK);

    let signed = server.get(&format!("{endpoints}?expires=4102444800")).await.json();
    let signed = path_of(&server, &signed);
    let ping = server.ask_as("", "GET", &format!("{signed}/ping"), Value::Null).await;
    assert_eq!(ping.status, StatusCode::OK);
    let other_port = signed.replace("/44772", "/80");
    let refused = server.ask_as("", "GET", &other_port, Value::Null).await;
    assert_eq!(refused.error(), (403, "SIGNED_ROUTE_INVALID".into()));

    let ingress = Request::get("/ping")
        .header("opensandbox-ingress-to", format!("{id}-44772"))
        .header("open-sandbox-api-key", ALICE)
        .body(Body::empty())
        .unwrap();
    assert_eq!(server.send(ingress).await.status, StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn endpoints_refuse_what_cannot_be() {
    let server = Running::start().await;
    let id = server.create(json!({})).await;
    for (tail, status, code) in [
        ("0", 400, "DOCKER::INVALID_PORT"),
        ("65536", 400, "DOCKER::INVALID_PORT"),
        ("http", 422, "VALIDATION_ERROR"),
        ("80?expires=1", 400, "SANDBOX::INVALID_PARAMETER"),
        ("80?expires=x", 422, "VALIDATION_ERROR"),
        ("80?use_server_proxy=true&expires=4102444800", 400, "SANDBOX::INVALID_PARAMETER"),
        ("80?use_server_proxy=maybe", 422, "VALIDATION_ERROR"),
    ] {
        let answer = server.get(&format!("/v1/sandboxes/{id}/endpoints/{tail}")).await;
        assert_eq!(answer.error(), (status, code.to_owned()), "{tail}");
    }
    server.stop().await;
}

#[tokio::test]
async fn closed_ports_and_paused_sandboxes_are_told_apart() {
    let server = Running::start().await;
    let id = server.create(json!({})).await;
    let closed = server.get(&format!("/v1/sandboxes/{id}/proxy/8080/")).await;
    assert_eq!(closed.error(), (502, "BACKEND_CONNECTION_FAILED".into()));
    server.ask("POST", &format!("/v1/sandboxes/{id}/pause"), Value::Null).await;
    server.until(&id, "Paused").await;
    let paused = server.get(&format!("/v1/sandboxes/{id}/proxy/44772/ping")).await;
    assert_eq!(paused.error(), (409, "SANDBOX_PAUSED".into()));
    server.stop().await;
}

#[tokio::test]
async fn egress_rules_are_shown_and_refused() {
    let server = Running::start().await;
    let id = server.create(json!({})).await;
    let endpoint = server.get(&format!("/v1/sandboxes/{id}/endpoints/18080")).await.json();
    let policy = format!("{}/policy", path_of(&server, &endpoint));
    let shown = server.ask_as("", "GET", &policy, Value::Null).await.json();
    assert_eq!(shown["mode"], "allow_all");
    assert_eq!(shown["policy"], json!({"defaultAction": "allow", "egress": []}));
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let refused = server.ask_as("", method, &policy, json!([])).await;
        assert_eq!(refused.status, StatusCode::NOT_IMPLEMENTED);
        assert!(refused.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    }
    let control = format!("/v1/sandboxes/{id}/networkpolicy");
    assert_eq!(server.get(&control).await.json()["mode"], "allow_all");
    let put = server.ask("PUT", &control, json!({"defaultAction": "deny"})).await;
    assert_eq!(put.error(), (400, "SANDBOX::API_NOT_SUPPORTED".into()));
    server.stop().await;
}

#[tokio::test]
async fn a_server_without_uplink_says_that_nothing_is_allowed() {
    let data = tempfile::tempdir().unwrap();
    let mut config = running::config(&data);
    config.runtime.network.uplink = Uplink::None;
    let server = Running::start_with(config, data).await;
    let id = server.create(json!({})).await;
    for path in ["proxy/18080/policy", "networkpolicy"] {
        let shown = server.get(&format!("/v1/sandboxes/{id}/{path}")).await.json();
        assert_eq!(shown["mode"], "deny_all", "{path}");
        assert_eq!(shown["policy"], json!({"defaultAction": "deny", "egress": []}), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn snapshots_are_taken_used_and_deleted() {
    let server = Running::start().await;
    let id = server.create(json!({})).await;
    let path = format!("/v1/sandboxes/{id}/snapshots");
    let taken = server.ask("POST", &path, json!({"name": "first"})).await;
    assert_eq!(taken.status, StatusCode::ACCEPTED, "{}", taken.text());
    let location = taken.headers["location"].to_str().unwrap().to_owned();
    let snapshot = taken.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(location, format!("/v1/snapshots/{snapshot}"));
    for _ in 0..10_000 {
        if server.get(&location).await.json()["status"]["state"] == "Ready" {
            break;
        }
        tokio::task::yield_now().await;
    }
    for (query, total) in [
        (format!("sandboxId={id}"), 1),
        ("name=first&state=Ready".to_owned(), 1),
        ("name=second".to_owned(), 0),
        ("state=Failed".to_owned(), 0),
        ("sandboxId=NO-ID".to_owned(), 0),
    ] {
        let page = server.get(&format!("/v1/snapshots?{query}")).await.json();
        assert_eq!(page["pagination"]["totalItems"], total, "{query}");
    }
    let mut body = new_sandbox(json!({}));
    body.as_object_mut().unwrap().retain(|key, _| key != "image" && key != "entrypoint");
    body["snapshotId"] = json!(snapshot);
    let born = server.ask("POST", "/v1/sandboxes", body).await.json();
    let born_id = born["id"].as_str().unwrap();
    let shown = server.get(&format!("/v1/sandboxes/{born_id}")).await.json();
    assert_eq!((&shown["snapshotId"], shown.get("image")), (&json!(snapshot), None));
    assert_eq!(shown["entrypoint"], json!(["tail", "-f", "/dev/null"]));
    server.ask("DELETE", &format!("/v1/sandboxes/{born_id}"), Value::Null).await;
    for _ in 0..10_000 {
        let deleted = server.ask("DELETE", &location, Value::Null).await.status;
        if deleted == StatusCode::NO_CONTENT || deleted == StatusCode::NOT_FOUND {
            break;
        }
        assert_eq!(deleted, StatusCode::CONFLICT, "in use until the sandbox is gone");
        tokio::task::yield_now().await;
    }
    let unknown = server.get("/v1/snapshots/nosuchsnapshot").await;
    assert_eq!(unknown.error(), (404, "SNAPSHOT::NOT_FOUND".into()));
    server.stop().await;
}

#[tokio::test]
async fn diagnostics_come_as_json_and_as_text() {
    let server = Running::start().await;
    let mut body = new_sandbox(json!({}));
    body["entrypoint"] = json!(["sh", "-c", "echo hello; sleep"]);
    let made = server.ask("POST", "/v1/sandboxes", body).await.json();
    let path = format!("/v1/sandboxes/{}/diagnostics", made["id"].as_str().unwrap());
    let logs = server.get(&format!("{path}/logs?scope=container")).await.json();
    assert_eq!((&logs["kind"], &logs["delivery"]), (&json!("logs"), &json!("inline")));
    assert_eq!((&logs["content"], &logs["truncated"]), (&json!("hello\n"), &json!(false)));
    let plain = server.get(&format!("{path}/logs")).await;
    assert_eq!(
        (plain.text().as_str(), &plain.headers["deprecation"]),
        ("hello", &"true".parse().unwrap())
    );
    let events = server.get(&format!("{path}/events?scope=runtime")).await.json();
    assert!(events["content"].as_str().unwrap().contains("Running"), "{events}");
    let bad = server.get(&format!("{path}/logs?scope=nonsense")).await;
    assert_eq!(bad.error(), (400, "DIAGNOSTICS_SCOPE_UNSUPPORTED".into()));
    let recent = server.get(&format!("{path}/logs?since=10m")).await;
    assert_eq!((recent.text().as_str(), recent.headers.get("atoll-warning")), ("hello", None));
    let older = server.get(&format!("{path}/logs?since=0s")).await;
    assert!(older.headers.contains_key("atoll-warning"), "nothing is left out silently");
    let bad = server.get(&format!("{path}/logs?since=yesterday")).await;
    assert_eq!(bad.error(), (400, "SANDBOX::INVALID_PARAMETER".into()));
    for tail in ["inspect", "summary"] {
        let text = server.get(&format!("{path}/{tail}")).await;
        assert!(text.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    }
    server.stop().await;
}

#[tokio::test]
async fn refused_parts_and_unknown_routes_have_code_and_message() {
    let server = Running::start().await;
    for (method, path, status, code) in [
        ("GET", "/v1/templates", 501, "FSB::API_NOT_SUPPORTED"),
        ("DELETE", "/v1/templates/t", 501, "FSB::API_NOT_SUPPORTED"),
        ("POST", "/v1/pools", 501, "KUBERNETES::POOL_NOT_SUPPORTED"),
        ("PUT", "/v1/pools/p", 501, "KUBERNETES::POOL_NOT_SUPPORTED"),
        ("GET", "/v1/nothing", 404, "NOT_FOUND"),
        ("PUT", "/v1/sandboxes", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/nothing", 404, "NOT_FOUND"),
    ] {
        let answer = server.ask(method, path, Value::Null).await;
        assert_eq!(answer.error(), (status, code.to_owned()), "{method} {path}");
    }
    let event = json!({"eventType": "sandbox.create", "createDurationMs": 5, "success": true});
    let taken = server.ask("POST", "/v1/metrics/events", event).await;
    assert_eq!(taken.status, StatusCode::NO_CONTENT);
    let bad = server.ask("POST", "/v1/metrics/events", json!({"success": 7})).await;
    assert_eq!(bad.status, StatusCode::UNPROCESSABLE_ENTITY);
    server.stop().await;
}

#[tokio::test]
async fn bad_bodies_cost_no_sandbox() {
    let server = Running::start().await;
    let huge = format!("{{\"x\":\"{}\"}}", "x".repeat(300_000));
    for (body, status) in
        [("", 422), ("{", 422), ("null", 422), ("[]", 422), ("{}", 422), (huge.as_str(), 413)]
    {
        let request = Request::post("/v1/sandboxes")
            .header("open-sandbox-api-key", ALICE)
            .body(Body::from(body.to_owned()))
            .unwrap();
        let answer = server.send(request).await;
        assert_eq!(answer.error().0, status, "{}", &body[..body.len().min(20)]);
        assert_eq!(answer.json()["detail"].is_array(), status == 422);
    }
    let list = server.get("/v1/sandboxes").await.json();
    assert_eq!(list["pagination"]["totalItems"], 0);
    server.stop().await;
}
