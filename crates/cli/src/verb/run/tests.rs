use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use axum::extract::{Path, Query};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::{MARK, run};
use crate::args::{Run, Shape};
use crate::client::Client;

/// A server of one sandbox, `abc`, whose command exits with 7.
struct Fake {
    client: Client,
    removed: Arc<Mutex<Vec<String>>>,
}

/// `broken`: the sandbox fails to start, and is kept to be looked at.
async fn fake(broken: bool) -> Fake {
    let removed = Arc::new(Mutex::new(Vec::new()));
    let noted = removed.clone();
    let mark = Arc::new(Mutex::new(String::new()));
    let (given, asked) = (mark.clone(), mark);
    let create = async move |Json(wish): Json<Value>| {
        *given.lock().unwrap() = format!("{MARK}={}", wish["metadata"][MARK].as_str().unwrap());
        if broken {
            let body = json!({"code": "PULL_FAILED", "message": "no such image"});
            return (StatusCode::INTERNAL_SERVER_ERROR, Json(body));
        }
        let status = json!({"state": "Running"});
        (StatusCode::ACCEPTED, Json(json!({"id": "abc", "status": status, "createdAt": "now"})))
    };
    let list = async move |Query(query): Query<std::collections::BTreeMap<String, String>>| {
        assert_eq!(query["metadata"], *asked.lock().unwrap(), "only its own is looked for");
        Json(json!({"items": [{"id": "abc"}], "pagination": {"hasNextPage": false}}))
    };
    let remove = async move |Path(id): Path<String>| {
        noted.lock().unwrap().push(id);
        StatusCode::NO_CONTENT
    };
    let endpoint = async |headers: HeaderMap| {
        let host = headers["host"].to_str().unwrap().to_owned();
        Json(json!({"endpoint": format!("{host}/agent")}))
    };
    let command = async || {
        "{\"type\":\"error\",\"error\":{\"ename\":\"E\",\"evalue\":\"7\"}}\n\n".into_response()
    };
    let router = Router::new()
        .route("/v1/sandboxes", post(create).get(list))
        .route("/v1/sandboxes/{id}", axum::routing::delete(remove))
        .route("/v1/sandboxes/{id}/endpoints/44772", get(endpoint))
        .route("/agent/command", post(command));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = Client::new(&url, None, std::path::Path::new("/nonexistent")).unwrap();
    Fake { client, removed }
}

fn options(keep: bool) -> Run {
    let shape = Shape {
        image: "base".to_owned(),
        env: Vec::new(),
        label: Vec::new(),
        cpu: "1".to_owned(),
        memory: "64Mi".to_owned(),
        timeout: 60,
    };
    Run { shape, keep, command: vec!["false".to_owned()] }
}

#[tokio::test]
async fn the_status_is_passed_on_and_the_sandbox_removed() {
    let fake = fake(false).await;
    assert_eq!(run(&fake.client, options(false)).await.unwrap(), ExitCode::from(7));
    assert_eq!(*fake.removed.lock().unwrap(), ["abc"]);
}

#[tokio::test]
async fn a_kept_sandbox_stays() {
    let fake = fake(false).await;
    assert_eq!(run(&fake.client, options(true)).await.unwrap(), ExitCode::from(7));
    assert!(fake.removed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_sandbox_that_did_not_start_is_removed_too() {
    let fake = fake(true).await;
    let error = run(&fake.client, options(false)).await.unwrap_err();
    assert!(error.to_string().contains("no such image"), "{error}");
    assert_eq!(*fake.removed.lock().unwrap(), ["abc"]);
}
