//! The server around the doors: probes, limits, an orderly end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/running.rs"]
mod running;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use atoll_server::{ServeError, Server};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use running::{Running, config};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn probes_answer_without_a_key() {
    let server = Running::start().await;
    server.create(json!({})).await;
    for (path, said) in [
        ("/health", "healthy"),
        ("/healthz", "healthy"),
        ("/readyz", "ready"),
        ("/version", env!("CARGO_PKG_VERSION")),
        ("/metrics", "atoll_sandboxes{phase=\"running\"} 1"),
    ] {
        let answer = server.send(Request::get(path).body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert!(answer.text().contains(said), "{path}: {}", answer.text());
    }
    let metrics = server.get("/metrics").await.text();
    assert!(metrics.contains("atoll_create_seconds_count 1"), "{metrics}");
    server.stop().await;
}

#[tokio::test]
async fn every_answer_has_a_request_id() {
    let server = Running::start().await;
    let mine = Request::get("/nothing").header("x-request-id", "mine-1").body(Body::empty());
    let answer = server.send(mine.unwrap()).await;
    assert_eq!(answer.headers["x-request-id"], "mine-1");
    let made = server.get("/v1/sandboxes/nosuch").await;
    assert_eq!(made.headers["x-request-id"].len(), 32);
    server.stop().await;
}

#[tokio::test]
async fn web_pages_may_call_the_api() {
    let server = Running::start().await;
    let preflight = Request::options("/v1/sandboxes")
        .header("origin", "http://page.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "open-sandbox-api-key")
        .body(Body::empty())
        .unwrap();
    let answer = server.send(preflight).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["access-control-allow-headers"], "open-sandbox-api-key");
    assert_eq!(answer.headers["access-control-allow-origin"], "http://page.example");
    server.stop().await;
}

#[tokio::test]
async fn two_servers_never_share_a_data_folder() {
    let server = Running::start().await;
    let second = Server::bind(config(&server.data)).await;
    assert!(matches!(second, Err(ServeError::InUse(_))));
    server.stop().await;
}

#[tokio::test]
async fn the_data_folder_and_its_records_are_private() {
    let data = tempfile::tempdir().unwrap();
    std::fs::set_permissions(data.path(), Permissions::from_mode(0o755)).unwrap();
    let server = Running::start_in(data).await;
    for (path, mode) in [("", 0o700), ("records.redb", 0o600), ("signing-secret", 0o600)] {
        let found = std::fs::metadata(server.data.path().join(path)).unwrap().permissions();
        assert_eq!(found.mode() & 0o777, mode, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn records_outlive_the_server() {
    let server = Running::start().await;
    let id = server.create(json!({})).await;
    let server = Running::start_in(server.stop().await).await;
    // The simulated machine does not outlive the process, and the record says so.
    server.until(&id, "Failed").await;
    server.stop().await;
}

#[tokio::test]
async fn stopping_lets_a_request_finish_and_takes_no_new_ones() {
    let server = Running::start().await;
    let address = server.address;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "POST /v1/metrics/events HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\
                open-sandbox-api-key: alice-0123456789abcdef\r\nexpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut buffer = [0; 1024];
    // The server asks for the body, so the request is under way.
    let count = stream.read(&mut buffer).await.unwrap();
    assert!(buffer[..count].starts_with(b"HTTP/1.1 100"));
    let stopping = tokio::spawn(server.stop());
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream.write_all(b"{}").await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.starts_with(b"HTTP/1.1 422"), "{}", String::from_utf8_lossy(&rest));
    stopping.await.unwrap();
}

/// The head of the next answer, whose body has a known length and is read too.
async fn next_answer(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the connection goes on"));
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    stream.read_exact(&mut vec![0; length.parse().unwrap()]).await.unwrap();
    head
}

#[tokio::test]
async fn a_body_that_nobody_wanted_does_not_cost_the_connection() {
    let server = Running::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    for _ in 0..3 {
        let head = "POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let refused = next_answer(&mut stream).await;
        assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
        stream.write_all(&[b'x'; 100_000]).await.unwrap();
    }
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(next_answer(&mut stream).await.starts_with("HTTP/1.1 200"));
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn a_large_body_that_nobody_wanted_ends_the_connection_openly() {
    let server = Running::start().await;
    for sized in ["content-length: 1000000000", "content-length: 2\r\nexpect: 100-continue"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!("POST /nothing HTTP/1.1\r\nhost: x\r\n{sized}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let refused = next_answer(&mut stream).await;
        assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
        assert!(refused.contains("connection: close"), "{refused}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_head_that_never_ends_loses_its_connection() {
    let data = tempfile::tempdir().unwrap();
    let mut config = config(&data);
    config.limits.header_seconds_max = 1;
    let server = Running::start_with(config, data).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost:").await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(!rest.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&rest));
    server.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_their_turn() {
    let data = tempfile::tempdir().unwrap();
    let mut config = config(&data);
    config.limits.connections_max = 1;
    let server = Running::start_with(config, data).await;
    let mut first = TcpStream::connect(server.address).await.unwrap();
    first.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    first.read_u8().await.unwrap();
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    // The first connection is served again while the second waits.
    first.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    first.read_exact(&mut [0; 200]).await.unwrap();
    assert!(second.try_read(&mut [0; 1]).is_err(), "nothing for the second yet");
    drop(first);
    assert_eq!(second.read_u8().await.unwrap(), b'H');
    server.stop().await;
}
