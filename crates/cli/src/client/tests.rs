use std::collections::BTreeMap;

use axum::Router;
use axum::extract::{Multipart, Path, Query, Request};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use serde_json::{Value, json};

use super::command::{Events, Meaning};
use super::{Client, Command, Detail, Outcome, Output};
use crate::error::Error;

/// Serves `router` on a free port of loopback and returns a client of it.
async fn client_of(router: Router) -> Client {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Client::new(&url, Some("k".to_owned()), std::path::Path::new("/nonexistent")).unwrap()
}

/// A router whose endpoint route leads back to itself, as the real server's does.
fn with_agent(agent: Router) -> Router {
    let endpoint = async |headers: HeaderMap| {
        let host = headers["host"].to_str().unwrap().to_owned();
        axum::Json(json!({"endpoint": format!("{host}/agent")}))
    };
    Router::new().route("/v1/sandboxes/{id}/endpoints/44772", get(endpoint)).nest("/agent", agent)
}

fn command(argv: &[&str]) -> Command {
    let argv = argv.iter().map(|&word| word.to_owned()).collect();
    Command { argv, cwd: None, envs: BTreeMap::new(), timeout: None }
}

async fn run(stream: &'static str) -> (Result<Outcome, Error>, Vec<Output>) {
    let handler = async move |body: axum::Json<Value>| {
        assert_eq!(body.0, json!({"argv": ["ls", "-l"]}));
        stream
    };
    let client = client_of(with_agent(Router::new().route("/command", post(handler)))).await;
    let mut shown = Vec::new();
    let mut show = |line| {
        shown.push(line);
        Ok(())
    };
    let result = client.exec("abc", &command(&["ls", "-l"]), &mut show).await;
    (result, shown)
}

#[tokio::test]
async fn lines_and_status_of_a_command_arrive() {
    let (result, shown) = run(concat!(
        "{\"type\":\"init\",\"text\":\"x\"}\n\n",
        "{\"type\":\"stdout\",\"text\":\"one\"}\n\n",
        "{\"type\":\"stdout\",\"text\":\"\\n\"}\n\n",
        "{\"type\":\"ping\"}\n\n",
        "{\"type\":\"stderr\",\"text\":\"two\"}\n\n",
        "{\"type\":\"error\",\"error\":{\"ename\":\"CommandExecError\",\"evalue\":\"7\"}}\n\n",
    ))
    .await;
    assert_eq!(result.unwrap(), Outcome::Exit(7));
    let expected = [
        Output::Stdout("one\n".to_owned()),
        Output::Stdout("\n".to_owned()),
        Output::Stderr("two\n".to_owned()),
    ];
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn a_stream_without_an_end_is_an_error() {
    let (result, shown) = run("{\"type\":\"stdout\",\"text\":\"one\"}\n\n").await;
    assert!(matches!(result, Err(Error::CutOff)), "{result:?}");
    assert_eq!(shown.len(), 1);
    let (result, _) = run("not json\n\n").await;
    assert!(matches!(result, Err(Error::Garbled { .. })), "{result:?}");
}

#[tokio::test]
async fn a_command_without_a_status_was_stopped() {
    for traceback in ["[\"timed out\"]", "\"timed out\""] {
        let end = format!("{{\"evalue\":\"-1\",\"traceback\":{traceback}}}");
        let stream = format!("{{\"type\":\"error\",\"error\":{end}}}\n\n");
        let (result, _) = run(stream.leak()).await;
        assert_eq!(result.unwrap(), Outcome::Stopped("timed out".to_owned()));
    }
}

#[test]
fn events_are_cut_wherever_the_pieces_are() {
    let wire =
        b"data: {\"type\":\"stdout\",\"text\":\"a\"}\n\n\n\n{\"type\":\"execution_complete\"}\n\n";
    for size in 1..wire.len() {
        let mut events = Events::default();
        let mut found = Vec::new();
        for piece in wire.chunks(size) {
            found.extend(events.push(piece).unwrap().into_iter().map(|event| event.meaning()));
        }
        let expected =
            [Meaning::Output(Output::Stdout("a\n".to_owned())), Meaning::End(Outcome::Exit(0))];
        assert_eq!(found, expected, "pieces of {size}");
    }
}

#[test]
fn an_event_without_end_is_bounded() {
    let mut events = Events::default();
    let piece = vec![b'x'; 1 << 20];
    let refused = (0..64).find(|_| events.push(&piece).is_err());
    assert!(refused.is_some(), "64 MiB must not be kept");
}

#[tokio::test]
async fn refusals_keep_the_servers_words() {
    let refuse = async |Path(id): Path<String>| match id.as_str() {
        "coded" => (StatusCode::CONFLICT, r#"{"code":"C","message":"M"}"#),
        "plain" => (StatusCode::BAD_GATEWAY, "upstream is away"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, ""),
    };
    let client = client_of(Router::new().route("/v1/sandboxes/{id}", delete(refuse))).await;
    let expected = [
        ("coded", "M (C)"),
        ("plain", "upstream is away (HTTP 502)"),
        ("silent", "the server refused without a word (HTTP 500)"),
    ];
    for (id, words) in expected {
        assert_eq!(client.remove(id).await.unwrap_err().to_string(), words);
    }
}

#[tokio::test]
async fn an_id_can_not_become_a_path() {
    let client = client_of(Router::new()).await;
    for id in ["", "a/b", "..", "a?b", "a b"] {
        assert!(matches!(client.remove(id).await, Err(Error::Usage(_))), "{id:?}");
    }
}

#[tokio::test]
async fn all_pages_are_read_and_filters_are_escaped_once_more_than_the_form() {
    let list = async |headers: HeaderMap, Query(query): Query<BTreeMap<String, String>>| {
        assert_eq!(headers["open-sandbox-api-key"], "k");
        assert_eq!(query["metadata"], "a%20b=c%26d");
        let page: usize = query["page"].parse().unwrap();
        axum::Json(json!({
            "items": [{"id": format!("s{page}")}],
            "pagination": {"hasNextPage": page < 3},
        }))
    };
    let client = client_of(Router::new().route("/v1/sandboxes", get(list))).await;
    let labels = [("a b".to_owned(), "c&d".to_owned())];
    let found = client.list(&[], &labels).await.unwrap();
    let ids: Vec<&str> = found.iter().filter_map(|s| s["id"].as_str()).collect();
    assert_eq!(ids, ["s1", "s2", "s3"]);
}

#[tokio::test]
async fn the_timeline_is_read_with_or_without_a_diagnostic() {
    let show = async |Path(id): Path<String>| {
        let mut body = json!({"timeline": [{"at": "t", "phase": "starting", "message": "m"}]});
        if id == "failed" {
            body["diagnostic"] = json!({"reason": "R", "message": "M", "recommendation": "D"});
        }
        axum::Json(body)
    };
    let client = client_of(Router::new().route("/atoll/v1/sandboxes/{id}", get(show))).await;
    let fine: Detail = client.detail("fine").await.unwrap();
    assert_eq!((fine.timeline.len(), fine.diagnostic.is_none()), (1, true));
    let failed: Detail = client.detail("failed").await.unwrap();
    assert_eq!(failed.diagnostic.unwrap().recommendation, "D");
}

#[tokio::test]
async fn files_travel_both_ways() {
    let upload = async |mut form: Multipart| {
        let metadata = form.next_field().await.unwrap().unwrap();
        assert_eq!(metadata.name(), Some("metadata"));
        let metadata: Value = serde_json::from_slice(&metadata.bytes().await.unwrap()).unwrap();
        assert_eq!(metadata, json!({"path": "/a b", "mode": 644}));
        let file = form.next_field().await.unwrap().unwrap();
        assert_eq!(file.bytes().await.unwrap(), &b"\x00\xffbytes"[..]);
        StatusCode::OK
    };
    let download = async |request: Request| {
        assert_eq!(request.uri().query(), Some("path=%2Fa%20b"));
        b"\x00\xffbytes".into_response()
    };
    let agent =
        Router::new().route("/files/upload", post(upload)).route("/files/download", get(download));
    let client = client_of(with_agent(agent)).await;
    client.upload("abc", "/a b", 644, &b"\x00\xffbytes"[..]).await.unwrap();
    let body = client.download("abc", "/a b").await.unwrap().bytes().await.unwrap();
    assert_eq!(body, &b"\x00\xffbytes"[..]);
}

#[tokio::test]
async fn a_server_that_is_away_is_named() {
    let client = Client::new("http://127.0.0.1:1", None, std::path::Path::new("/nonexistent"));
    let error = client.unwrap().get("abc").await.err().expect("nobody listens on port 1");
    assert!(error.to_string().contains("http://127.0.0.1:1"), "{error}");
    assert!(Client::new("localhost:80", None, std::path::Path::new("/nonexistent")).is_err());
}

#[test]
fn the_key_of_a_local_server_is_found() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("api-key"), "secret\n").unwrap();
    let client = Client::new("http://127.0.0.1:1", None, folder.path()).unwrap();
    assert_eq!(client.key.as_deref(), Some("secret"));
    let given = Client::new("http://127.0.0.1:1", Some("mine".to_owned()), folder.path()).unwrap();
    assert_eq!(given.key.as_deref(), Some("mine"));
}

#[tokio::test]
async fn pools_are_declared_listed_and_forgotten() {
    let pool = |name: String, size: u64| {
        json!({"name": name, "template": "base", "size": size, "ready": 1, "starting": 0,
            "waiting": 0, "hits": 0, "misses": 0, "trouble": null})
    };
    let set = move |Path(name): Path<String>, body: String| async move {
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["template"], "base");
        pool(name, body["size"].as_u64().unwrap()).to_string()
    };
    let list = move || async move { json!({"pools": [pool("warm".to_owned(), 2)]}).to_string() };
    let forget = || async { StatusCode::NO_CONTENT };
    let router = Router::new()
        .route("/atoll/v1/pools", get(list))
        .route("/atoll/v1/pools/{name}", axum::routing::put(set).delete(forget));
    let client = client_of(router).await;
    let made = client.set_pool("warm", "base", 2).await.unwrap();
    assert_eq!((&made["name"], &made["size"]), (&json!("warm"), &json!(2)));
    assert_eq!(client.pools().await.unwrap().len(), 1);
    client.remove_pool("warm").await.unwrap();
    for name in ["", "..", "a/b", "a?b"] {
        assert!(matches!(client.remove_pool(name).await, Err(Error::Usage(_))), "{name:?}");
    }
}
