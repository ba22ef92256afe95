//! Requests into sandboxes.

use std::time::Duration;

use atoll_testkit::{eventually, sample};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::agent::{SERVICE_PORT, SOCKET_PORT};
use crate::world::{World, new_sandbox, plain};

pub(crate) const ENVD: u16 = 49983;

pub(crate) struct Box {
    pub(crate) id: String,
    pub(crate) token: String,
    pub(crate) traffic: String,
}

pub(crate) async fn boxed(world: &World, members: Value) -> Box {
    told(&world.create(members).await)
}

/// What an answer tells about a sandbox.
pub(crate) fn told(made: &Value) -> Box {
    let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
    Box {
        id: text("sandboxID"),
        token: text("envdAccessToken"),
        traffic: text("trafficAccessToken"),
    }
}

/// As links carry it.
pub(crate) fn signature(raw: &str) -> String {
    let digest = STANDARD_NO_PAD.encode(Sha256::digest(raw));
    format!("v1_{}", digest.replace('+', "%2B").replace('/', "%2F"))
}

#[tokio::test]
async fn the_agent_is_reached_with_the_sandbox_s_token_only() {
    let world = World::new().await;
    let sandbox = boxed(&world, json!({})).await;
    let other = boxed(&world, json!({})).await;
    let at = (sandbox.id.as_str(), ENVD);
    let start = "/process.Process/Start";
    let auth = ("x-access-token", sandbox.token.as_str());
    let headers = [auth, ("authorization", "Basic dXNlcjo="), ("x-api-key", "e2b_alice")];
    let told = world.reach(at, "POST", &format!("/{start}?x=%20"), &headers).await.expect(200);
    assert_eq!(
        (&told["method"], &told["path"]),
        (&json!("POST"), &json!(format!("/envd{start}?x=%20")))
    );
    assert_eq!(told["headers"]["authorization"], "Basic dXNlcjo=", "it selects the user");
    for ours in ["x-access-token", "x-api-key", "e2b-sandbox-id", "e2b-sandbox-port"] {
        assert!(told["headers"][ours].is_null(), "{ours} is not for the inside");
    }
    for wrong in [&[][..], &[("x-access-token", "x")], &[("x-access-token", &other.token)]] {
        world.reach(at, "POST", start, wrong).await.error(401);
        world.reach((&sandbox.id, 44772), "GET", "/ping", wrong).await.error(401);
    }
    let health = world.reach(at, "GET", "/health", &[]).await.expect(200);
    assert_eq!(health["path"], "/envd/health");
    world.reach(at, "POST", "/health", &[]).await.error(401);
    world.reach(at, "POST", "/init", &[auth]).await.error(404);
    let execd = world.reach((&sandbox.id, 44772), "GET", "/ping", &[auth]).await.expect(200);
    assert_eq!(execd["path"], "/ping");
    world.reach((&sandbox.id, 44772), "POST", "/atoll/configure", &[auth]).await.error(404);
}

#[tokio::test]
async fn only_the_old_generation_lets_a_client_go_without_a_token() {
    let world = World::new().await;
    let body = new_sandbox(json!({"secure": false}));
    let open = world.ask("POST", "/sandboxes", body.clone()).await.expect(201);
    assert!(open["envdAccessToken"].is_null(), "{open}");
    let id = open["sandboxID"].as_str().unwrap();
    world.reach((id, ENVD), "GET", "/files?path=a", &[]).await.expect(200);
    world.reach((id, 44772), "GET", "/ping", &[]).await.error(401);
    let closed = world.ask("POST", "/v2/sandboxes", body).await.expect(201);
    let id = closed["sandboxID"].as_str().unwrap();
    world.reach((id, ENVD), "GET", "/files?path=a", &[]).await.error(401);
}

#[tokio::test]
async fn every_way_to_name_a_port_leads_to_it() {
    let world = World::new().await;
    let Box { id, token, .. } = boxed(&world, json!({})).await;
    let by_header = world.reach((&id, SERVICE_PORT), "GET", "/a?b", &[]).await.expect(200);
    assert_eq!(
        (&by_header["path"], &by_header["headers"]["host"]),
        (&json!("/a?b"), &json!("localhost:8080"))
    );
    let host = format!("{SERVICE_PORT}-{id}.localhost:3000");
    let by_host = world.send(plain("GET", "/a?b", &[("host", &host)])).await.expect(200);
    assert_eq!(by_host["path"], "/a?b");
    let path = format!("/kruise/{id}/{SERVICE_PORT}/a?b");
    let by_path = world.send(plain("GET", &path, &[])).await.expect(200);
    assert_eq!(by_path["path"], "/a?b");
    let by_token = [("x-access-token", token.as_str())];
    let told = world.send(plain("GET", "/envs", &by_token)).await.expect(200);
    assert_eq!(told["path"], "/envd/envs", "clients of old say nothing but the token");
    world.send(plain("GET", "/envs", &[("x-access-token", "x")])).await.error(502);
    let bad = world.send(plain("GET", "/", &[("e2b-sandbox-id", &id)])).await;
    assert!(bad.status == 400 && bad.text().contains("missing header"), "{}", bad.text());
}

#[tokio::test]
async fn what_cannot_be_reached_is_answered_in_the_words_clients_look_for() {
    let world = World::new().await;
    let Box { id, token, .. } = boxed(&world, json!({})).await;
    let closed = world.reach((&id, 1234), "GET", "/", &[]).await;
    assert_eq!(closed.headers["content-type"], "application/json; charset=utf-8");
    let message = "The sandbox is running but port is not open";
    assert_eq!(
        closed.expect(502),
        json!({"sandboxId": id, "message": message, "port": 1234, "code": 502})
    );
    let missing =
        |id: &str| json!({"sandboxId": id, "message": "The sandbox was not found", "code": 502});
    let unknown = world.reach(("unknown", ENVD), "GET", "/health", &[]).await.expect(502);
    assert_eq!(unknown, missing("unknown"));
    world.ask("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.expect(204);
    let auth = [("x-access-token", token.as_str())];
    for (port, path) in [(ENVD, "/health"), (ENVD, "/metrics"), (SERVICE_PORT, "/")] {
        let paused = world.reach((&id, port), "GET", path, &auth).await.expect(502);
        assert_eq!(paused, missing(&id), "{port}{path}");
    }
    world.ask("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.expect(204);
    let killed = world.reach((&id, ENVD), "GET", "/health", &[]).await.expect(502);
    assert_eq!(killed, missing(&id));
}

#[tokio::test]
async fn traffic_that_is_not_public_needs_its_own_token() {
    let world = World::new().await;
    let network = json!({"allowPublicTraffic": false, "maskRequestHost": "app.local:${PORT}"});
    let sandbox = boxed(&world, json!({"network": network})).await;
    assert!(!sandbox.traffic.is_empty() && sandbox.traffic != sandbox.token);
    for port in [SERVICE_PORT, 49999] {
        let at = (sandbox.id.as_str(), port);
        world.reach(at, "GET", "/contexts", &[]).await.error(403);
        let access = [("e2b-traffic-access-token", sandbox.token.as_str())];
        world.reach(at, "GET", "/contexts", &access).await.error(403);
        let traffic = [("e2b-traffic-access-token", sandbox.traffic.as_str())];
        let told = world.reach(at, "GET", "/contexts", &traffic).await.expect(200);
        assert!(told["headers"]["e2b-traffic-access-token"].is_null());
        let host = if port == 49999 { "localhost" } else { "app.local:8080" };
        assert_eq!(told["headers"]["host"], host);
    }
    let auth = [("x-access-token", sandbox.token.as_str())];
    world.reach((&sandbox.id, ENVD), "GET", "/envs", &auth).await.expect(200);
    let shown = world.detail(&sandbox.id).await;
    assert_eq!(shown["network"]["allowPublicTraffic"], false);
    let connect = format!("/v2/sandboxes/{}/connect", sandbox.id);
    let again = world.ask("POST", &connect, Value::Null).await.expect(200);
    assert_eq!(again["trafficAccessToken"], sandbox.traffic);
}

#[tokio::test]
async fn signed_links_open_one_file_for_one_purpose() {
    let world = World::new().await;
    let Box { id, token, .. } = boxed(&world, json!({})).await;
    let at = (id.as_str(), ENVD);
    let read = signature(&format!("/a b:read:user:{token}"));
    let link = format!("/files?path=%2Fa+b&username=user&signature={read}");
    let told = world.reach(at, "GET", &link, &[]).await.expect(200);
    assert!(told["path"].as_str().unwrap().starts_with("/envd/files?"), "{told}");
    world.send(plain("GET", &link, &[])).await.expect(200);
    world.reach(at, "POST", &link, &[]).await.error(401);
    world.send(plain("POST", &link, &[])).await.error(401);
    let write = signature(&format!(":write::{token}"));
    world.reach(at, "POST", &format!("/files?signature={write}"), &[]).await.expect(200);
    world.send(plain("POST", &format!("/files?signature={write}"), &[])).await.expect(200);

    let missing = world.reach(at, "GET", "/files?path=a", &[]).await.error(401);
    assert_eq!(missing, "missing signature query parameter");
    let wrong = [("x-access-token", "x")];
    world.reach(at, "GET", &link, &wrong).await.error(401);
    let right = [("x-access-token", token.as_str())];
    world.reach(at, "GET", "/files?path=a", &right).await.expect(200);

    let now = sample::NOW.as_micros() / 1_000_000;
    for (expiration, status) in [(now + 10, 200), (now - 1, 401)] {
        let signed = signature(&format!("/a:read::{token}:{expiration}"));
        let link = format!("/files?path=/a&signature={signed}&signature_expiration={expiration}");
        for answer in
            [world.reach(at, "GET", &link, &[]).await, world.send(plain("GET", &link, &[])).await]
        {
            let body = answer.expect(status);
            if status == 401 {
                let expired = json!({"code": 401, "message": "signature is already expired"});
                assert_eq!(body, expired);
            }
        }
    }
}

#[tokio::test]
async fn traffic_wakes_a_sandbox_that_wants_it_and_nothing_else_does() {
    let world = World::new().await;
    let members = json!({"autoPause": true, "autoResume": {"enabled": true}, "timeout": 60});
    let Box { id, token, .. } = boxed(&world, members).await;
    assert_eq!(
        world.detail(&id).await["lifecycle"],
        json!({"autoResume": true, "onTimeout": "pause"})
    );
    let paused = async || {
        world.clock.advance(Duration::from_secs(1000));
        eventually("it is paused", async || {
            (world.detail(&id).await["state"] == "paused").then_some(())
        })
        .await;
    };
    paused().await;
    world.reach((&id, ENVD), "GET", "/health", &[]).await.error(502);
    world.reach((&id, ENVD), "GET", "/envs", &[("x-access-token", "x")]).await.error(401);
    assert_eq!(world.detail(&id).await["state"], "paused");
    let auth = [("x-access-token", token.as_str())];
    world.reach((&id, ENVD), "GET", "/envs", &auth).await.expect(200);
    assert_eq!(world.detail(&id).await["state"], "running");
    paused().await;
    world.reach((&id, SERVICE_PORT), "GET", "/", &[]).await.expect(200);
    assert_eq!(world.detail(&id).await["state"], "running");
}

#[tokio::test]
async fn a_preflight_to_the_agent_needs_no_token() {
    let world = World::new().await;
    let Box { id, .. } = boxed(&world, json!({})).await;
    let asked = [
        ("origin", "https://page.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "x-access-token"),
    ];
    let answer = world.reach((&id, ENVD), "OPTIONS", "/files", &asked).await;
    assert_eq!(answer.status, 204);
    assert_eq!(answer.headers["access-control-allow-origin"], "*");
    assert_eq!(answer.headers["access-control-allow-headers"], "x-access-token");
    let inside = world.reach((&id, SERVICE_PORT), "OPTIONS", "/", &asked).await.expect(200);
    assert_eq!(inside["method"], "OPTIONS", "a service answers for itself");
}

#[tokio::test]
async fn a_connection_may_change_its_protocol() {
    let world = World::new().await;
    let Box { id, .. } = boxed(&world, json!({})).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = world.app.clone();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /kruise/{id}/{SOCKET_PORT}/ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n\
         upgrade: twice\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream.write_all(b"ab").await.unwrap();
    let mut twice = [0; 4];
    stream.read_exact(&mut twice).await.unwrap();
    assert_eq!(&twice, b"abab");
}
