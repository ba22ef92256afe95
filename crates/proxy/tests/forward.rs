//! Requests through the proxy, over real sockets on both sides.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "forward/reuse.rs"]
mod reuse;
#[path = "support/world.rs"]
mod world;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use atoll_control::{Access, Port};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{any, get};
use futures_util::{SinkExt as _, StreamExt as _, stream};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use world::{World, front, serve, tenant};

async fn send(to: SocketAddr, request: Request<Body>) -> hyper::Response<hyper::body::Incoming> {
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}

async fn text(to: SocketAddr, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).header("host", "front").body(Body::empty()).unwrap();
    let response = send(to, request).await;
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

fn key() -> Access {
    Access::Tenant(tenant())
}

#[tokio::test]
async fn answers_stream_while_they_are_being_written() {
    let (more, parts) = mpsc::channel::<&'static str>(1);
    let parts = Arc::new(tokio::sync::Mutex::new(Some(parts)));
    let upstream = serve(Router::new().route(
        "/stream",
        get(move || async move {
            let parts = parts.lock().await.take().unwrap();
            Body::from_stream(stream::unfold(parts, |mut parts| async move {
                let part = parts.recv().await?;
                Some((Ok::<_, std::io::Error>(Bytes::from(part)), parts))
            }))
        }),
    ))
    .await;
    let front = front(World::new(Some(upstream)), key(), Port::Agent).await;
    let request = Request::get("/stream").body(Body::empty()).unwrap();
    let mut body = send(front, request).await.into_body();
    for part in ["one", "two"] {
        more.send(part).await.unwrap();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), part);
    }
}

#[tokio::test]
async fn requests_stream_and_keep_their_method_query_and_headers() {
    let echo = |request: Request| async move {
        let line = format!("{} {}", request.method(), request.uri());
        let headers: HeaderMap = request.headers().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let host = headers["host"].to_str().unwrap();
        let forwarded = headers["x-forwarded-host"].to_str().unwrap();
        let secret = headers.contains_key("open-sandbox-api-key");
        format!("{line} {host} {forwarded} {secret} {}", body.len())
    };
    let upstream = serve(Router::new().fallback(any(echo))).await;
    let front = front(World::new(Some(upstream)), key(), Port::Tcp(8000)).await;
    let chunks = (0..100).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![7; 10_000])));
    let request = Request::put("/a%2Fb//c?x=%20&y")
        .header("host", "front.example")
        .header("open-sandbox-api-key", "secret")
        .body(Body::from_stream(stream::iter(chunks)))
        .unwrap();
    let answer = send(front, request).await.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(answer, "PUT /a%2Fb//c?x=%20&y localhost:8000 front.example false 1000000");
}

#[tokio::test]
async fn redirects_stay_below_the_prefix() {
    let moved = || async { (StatusCode::FOUND, [("location", "/login")]) };
    let upstream = serve(Router::new().route("/", get(moved))).await;
    let front = front(World::new(Some(upstream)), key(), Port::Tcp(80)).await;
    let request = Request::get("/").body(Body::empty()).unwrap();
    assert_eq!(send(front, request).await.headers()["location"], "/p/login");
}

#[tokio::test]
async fn websockets_pass_in_both_directions() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        while let Some(Ok(Message::Text(said))) = socket.next().await {
            socket.send(Message::text(format!("you said {said}"))).await.unwrap();
        }
    });
    let front = front(World::new(Some(upstream)), key(), Port::Tcp(80)).await;
    let stream = TcpStream::connect(front).await.unwrap();
    let (mut socket, response) =
        tokio_tungstenite::client_async(format!("ws://{front}/chat"), stream).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    for word in ["hello", "again"] {
        socket.send(Message::text(word)).await.unwrap();
        let heard = socket.next().await.unwrap().unwrap();
        assert_eq!(heard, Message::text(format!("you said {word}")));
    }
}

#[tokio::test]
async fn every_failure_is_told_apart() {
    let closed = front(World::new(None), key(), Port::Tcp(81)).await;
    assert_eq!(text(closed, "/").await.0, StatusCode::BAD_GATEWAY);

    let world = World::new(None);
    world.paused.store(true, Ordering::SeqCst);
    let (status, said) = text(front(world, key(), Port::Agent).await, "/").await;
    assert_eq!((status, said.as_str()), (StatusCode::CONFLICT, "it is paused"));

    let stranger = Access::Token("wrong".into());
    let (status, said) = text(front(World::new(None), stranger, Port::Agent).await, "/").await;
    assert_eq!((status, said.contains("does not exist")), (StatusCode::CONFLICT, true));
}

/// Answers every connection with `bytes` and closes it.
async fn blurt(bytes: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(&bytes).await;
        }
    });
    address
}

#[tokio::test]
async fn hostile_answers_are_refused_and_bounded() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(1000));
    let long = format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "x".repeat(1 << 20));
    let endless = "x".repeat(1 << 20);
    for bytes in [many, long, endless, "nonsense\r\n\r\n".to_owned(), String::new()] {
        let front = front(World::new(Some(blurt(bytes.into()).await)), key(), Port::Tcp(1)).await;
        assert_eq!(text(front, "/").await.0, StatusCode::IM_A_TEAPOT);
    }
}
