//! Volumes, secrets, teams.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::world::{ALICE, BOB, World, is_success, request};

fn content(token: &str, method: &str, path: &str, body: &'static str) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {token}"))
        .body(body.into())
        .unwrap()
}

#[tokio::test]
async fn volumes_are_made_shown_and_removed() {
    let world = World::new().await;
    let made = world.ask("POST", "/volumes", json!({"name": "data"})).await.expect(201);
    let id = made["volumeID"].as_str().unwrap();
    assert!(
        world.ask("POST", "/volumes", json!({"name": "data"})).await.error(400).contains("name")
    );
    world.ask("POST", "/volumes", json!({})).await.error(400);
    let list = world.get("/volumes").await.expect(200);
    assert_eq!(list, json!([{"volumeID": id, "name": "data"}]), "a list shows no token");
    assert_eq!(world.get(&format!("/volumes/{id}")).await.expect(200), made);
    let other = world.send(request(BOB, "GET", &format!("/volumes/{id}"), &Value::Null)).await;
    other.error(404);
    world.ask("DELETE", &format!("/volumes/{id}"), Value::Null).await.expect(204);
    world.ask("DELETE", &format!("/volumes/{id}"), Value::Null).await.error(404);
}

#[tokio::test]
async fn what_is_in_a_volume_is_for_whoever_has_its_token() {
    let world = World::new().await;
    let made = world.ask("POST", "/volumes", json!({"name": "data"})).await.expect(201);
    let (id, token) = (made["volumeID"].as_str().unwrap(), made["token"].as_str().unwrap());
    let at = |kind: &str, query: &str| format!("/volumecontent/{id}/{kind}?path={query}");
    let file = at("file", "%2Fa%20b.txt");
    let written = world.send(content(token, "PUT", &file, "hello")).await.expect(201);
    assert_eq!(written["path"], "/a b.txt");
    let read = world.send(content(token, "GET", &file, "")).await;
    assert_eq!((read.status, read.text().as_str()), (200, "hello"));
    assert_eq!(read.headers["content-length"], "5");
    let entry = world.send(content(token, "GET", &at("path", "/a%20b.txt"), "")).await.expect(200);
    assert_eq!((&entry["type"], &entry["size"]), (&json!("file"), &json!(5)));
    let changed = content(token, "PATCH", &at("path", "/a%20b.txt"), r#"{"mode": 384}"#);
    assert_eq!(world.send(changed).await.expect(200)["mode"], 384);
    let bad = content(token, "PATCH", &at("path", "/a%20b.txt"), r#"{"mode": -1}"#);
    world.send(bad).await.error(400);
    let listed = world.send(content(token, "GET", &at("dir", "/&depth=2"), "")).await.expect(200);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    let made = content(token, "POST", &at("dir", "/d&mode=448&force=true"), "");
    assert_eq!(world.send(made).await.expect(201)["type"], "directory");
    world.send(content(token, "POST", &at("dir", "/there"), "")).await.error(400);
    world.send(content(token, "DELETE", &at("path", "/a%20b.txt"), "")).await.expect(204);
    world.send(content(token, "GET", &file, "")).await.error(404);

    world.send(content("wrong", "GET", &file, "")).await.error(401);
    world.send(content(BOB, "GET", &file, "")).await.error(401);
    world.send(content(ALICE, "GET", &at("dir", "/"), "")).await.expect(200);
}

#[tokio::test]
async fn secrets_go_in_and_never_come_out() {
    let world = World::new().await;
    let body = json!({"name": "Api-Key", "value": "hunter2", "metadata": {"a": "1"}});
    let made = world.ask("POST", "/secrets", body.clone()).await;
    assert!(!made.text().contains("hunter2"));
    let made = made.expect(201);
    assert_eq!((&made["name"], &made["currentVersion"]), (&json!("api-key"), &json!(1)));
    world.ask("POST", "/secrets", body).await.error(409);
    let id = made["secretID"].as_str().unwrap();
    for path in [format!("/secrets/{id}"), "/secrets/api-key".into(), "/secrets".into()] {
        let shown = world.get(&path).await;
        assert!(is_success(shown.status) && !shown.text().contains("hunter2"), "{path}");
    }
    let updated = world.ask("POST", "/secrets/api-key", json!({"value": "hunter3"})).await;
    assert_eq!(updated.expect(200)["currentVersion"], 2);
    assert!(world.ask("POST", "/secrets", json!({"name": "x"})).await.error(400).contains("value"));
    world.ask("POST", "/secrets", json!({"name": "second", "value": "v"})).await.expect(201);
    let page = world.get("/secrets?limit=1").await;
    let next = page.headers["x-next-token"].to_str().unwrap();
    let rest = world.get(&format!("/secrets?limit=1&nextToken={next}")).await;
    assert_eq!(rest.expect(200).as_array().unwrap().len(), 1);
    assert!(!rest.headers.contains_key("x-next-token"));
    world.send(request(BOB, "GET", "/secrets/api-key", &Value::Null)).await.error(404);
    world.ask("DELETE", "/secrets/api-key", Value::Null).await.expect(204);
    world.ask("DELETE", "/secrets/api-key", Value::Null).await.error(404);
}

#[tokio::test]
async fn a_tenant_is_a_team_and_keys_are_the_operator_s() {
    let world = World::new().await;
    let teams = world.get("/teams").await.expect(200);
    assert_eq!((&teams[0]["teamID"], &teams[0]["isDefault"]), (&json!("alice"), &json!(true)));
    let keys = world.get("/api-keys").await;
    assert!(!keys.text().contains(ALICE), "a key is masked");
    assert_eq!(keys.expect(200)[0]["mask"]["prefix"], "e2b_");
    world.ask("POST", "/api-keys", json!({"name": "x"})).await.error(501);
    world.ask("POST", "/access-tokens", json!({"name": "x"})).await.error(410);
}
