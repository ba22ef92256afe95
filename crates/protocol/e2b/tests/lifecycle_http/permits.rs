//! Who may reach what inside.

use std::time::Duration;

use atoll_control::Control as _;
use atoll_testkit::sample;
use serde_json::{Value, json};

use crate::agent::SERVICE_PORT;
use crate::data::{Box, ENVD, boxed, signature, told};
use crate::world::{World, new_sandbox, plain};

const INTERPRETER: u16 = 49999;
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn code_runs_for_the_holder_of_the_token_only() {
    let world = World::new().await;
    let Box { id, token, .. } = boxed(&world, json!({})).await;
    let at = (id.as_str(), INTERPRETER);
    let auth = ("x-access-token", token.as_str());
    let told = world.reach(at, "POST", "/execute?source=x", &[auth]).await.expect(200);
    assert_eq!(told["path"], "/code-interpreter/execute?source=x");
    assert!(told["headers"]["x-access-token"].is_null());
    let page = [("content-type", "text/plain"), ("origin", "https://page.example")];
    for headers in [&[][..], &page, &[("x-access-token", "x")]] {
        for path in [
            "/execute",
            "//execute",
            "/execute/",
            "/%65xecute",
            "/contexts/../execute",
            "/contexts/%2e%2e/execute",
            "/contextsx",
            "/health",
            "/",
        ] {
            world.reach(at, "POST", path, headers).await.error(401);
        }
        let host = format!("{INTERPRETER}-{id}.localhost:3000");
        let mut by_host = vec![("host", host.as_str())];
        by_host.extend(headers);
        world.send(plain("POST", "/execute", &by_host)).await.error(401);
        let by_path = format!("/kruise/{id}/{INTERPRETER}/execute");
        world.send(plain("POST", &by_path, headers)).await.error(401);
    }
    for (method, path) in [
        ("GET", "/health"),
        ("GET", "/contexts"),
        ("POST", "/contexts"),
        ("DELETE", "/contexts/0a-b_c"),
        ("POST", "/contexts/0a-b_c/restart?source=x"),
    ] {
        world.reach(at, method, path, &[]).await.expect(200);
    }
}

#[tokio::test]
async fn the_traffic_token_runs_no_code() {
    let world = World::new().await;
    let members = json!({"network": {"allowPublicTraffic": false}});
    let Box { id, token, traffic } = boxed(&world, members).await;
    let at = (id.as_str(), INTERPRETER);
    let (auth, traffic) = (("x-access-token", &*token), ("e2b-traffic-access-token", &*traffic));
    world.reach(at, "POST", "/execute", &[traffic]).await.error(401);
    world.reach(at, "POST", "/execute", &[auth]).await.expect(200);
    world.reach(at, "POST", "/contexts", &[]).await.error(403);
    world.reach(at, "POST", "/contexts", &[traffic]).await.expect(200);
}

#[tokio::test]
async fn a_client_of_old_may_open_the_interpreter() {
    let world = World::new().await;
    let body = new_sandbox(json!({"secure": false}));
    let open = told(&world.ask("POST", "/sandboxes", body).await.expect(201));
    world.reach((&open.id, INTERPRETER), "POST", "/execute", &[]).await.expect(200);
}

#[tokio::test]
async fn what_another_door_made_is_closed_until_somebody_connects() {
    let world = World::new().await;
    let alice = sample::tenant("alice");
    let made = world.engine.create_and_wait(&alice, sample::create(), PATIENCE).await.unwrap();
    let id = made.id.as_str();
    for port in [SERVICE_PORT, 1234] {
        world.reach((id, port), "GET", "/", &[]).await.error(403);
    }
    for path in ["/contexts", "/health"] {
        world.reach((id, INTERPRETER), "GET", path, &[]).await.error(403);
    }
    world.reach((id, INTERPRETER), "POST", "/execute", &[]).await.error(401);
    world.reach((id, ENVD), "GET", "/envs", &[]).await.error(401);
    assert_eq!(world.detail(id).await["network"]["allowPublicTraffic"], false);

    for connect in [format!("/v2/sandboxes/{id}/connect"), format!("/sandboxes/{id}/connect")] {
        let answer = world.ask("POST", &connect, json!({"timeout": 60})).await.expect(200);
        let Box { token, traffic, .. } = told(&answer);
        let (auth, traffic) =
            (("x-access-token", &*token), ("e2b-traffic-access-token", &*traffic));
        world.reach((id, ENVD), "POST", "/process.Process/Start", &[auth]).await.expect(200);
        world.reach((id, ENVD), "GET", "/files?path=a", &[auth]).await.expect(200);
        world.reach((id, INTERPRETER), "POST", "/execute", &[auth, traffic]).await.expect(200);
        world.reach((id, INTERPRETER), "POST", "/contexts", &[traffic]).await.expect(200);
        world.reach((id, SERVICE_PORT), "GET", "/", &[traffic]).await.expect(200);
        let by_access = world.reach((id, SERVICE_PORT), "GET", "/", &[auth]).await.expect(200);
        assert!(by_access["headers"]["x-access-token"].is_null(), "services never see it");
        let link = format!("/files?path=/a&signature={}", signature(&format!("/a:read::{token}")));
        world.send(plain("GET", &link, &[])).await.expect(200);
    }
}

#[tokio::test]
async fn a_copy_of_an_open_sandbox_is_open_too() {
    let world = World::new().await;
    let Box { id, .. } = boxed(&world, json!({})).await;
    let forked = world.ask("POST", &format!("/sandboxes/{id}/fork"), Value::Null).await;
    let copy = told(&forked.expect(201)[0]["sandbox"]);
    assert_eq!(copy.traffic, "", "no token is needed");
    world.reach((&copy.id, SERVICE_PORT), "GET", "/", &[]).await.expect(200);
}

#[tokio::test]
async fn the_holder_of_a_link_is_the_user_that_was_signed() {
    let world = World::new().await;
    let Box { id, token, .. } = boxed(&world, json!({})).await;
    let at = (id.as_str(), ENVD);
    let root = ("authorization", "Basic cm9vdDo=");
    let link = format!("/files?path=/a&signature={}", signature(&format!("/a:read::{token}")));
    for answer in [
        world.reach(at, "GET", &link, &[root]).await,
        world.send(plain("GET", &link, &[root])).await,
    ] {
        assert!(answer.expect(200)["headers"]["authorization"].is_null());
    }
    let auth = ("x-access-token", token.as_str());
    let told = world.reach(at, "GET", "/files?path=/a", &[auth, root]).await.expect(200);
    assert_eq!(told["headers"]["authorization"], root.1, "who has the token chooses");
}

#[tokio::test]
async fn links_that_nobody_could_have_signed_are_not_searched_for() {
    let world = World::new().await;
    let Box { id, token, .. } = boxed(&world, json!({})).await;
    let link = |path: &str, signature: &str| format!("/files?path={path}&signature={signature}");
    let longest = "a".repeat(4096);
    let signed = signature(&format!("{longest}:read::{token}"));
    world.send(plain("GET", &link(&longest, &signed), &[])).await.expect(200);
    let longer = "a".repeat(4097);
    let right = signature(&format!("{longer}:read::{token}"));
    let user = "u".repeat(257);
    let by_user = signature(&format!("a:read:{user}:{token}"));
    let by_user = format!("{}&username={user}", link("a", &by_user));
    let zeros = "0".repeat(21);
    let expiring = signature(&format!("a:read::{token}:{zeros}"));
    let expiring = format!("{}&signature_expiration={zeros}", link("a", &expiring));
    for (link, named) in
        [(link(&longer, &right), "path"), (by_user, "username"), (expiring, "signature_expiration")]
    {
        assert!(world.send(plain("GET", &link, &[])).await.error(400).contains(named));
        world.reach((&id, ENVD), "GET", &link, &[]).await.error(400);
    }
    for wrong in ["v1_", "x", "v1_AAAA", &format!("{signed}A"), &signed[3..]] {
        let refused = world.send(plain("GET", &link(&longest, wrong), &[])).await.error(401);
        assert_eq!(refused, "invalid signature", "{wrong}");
    }
}
