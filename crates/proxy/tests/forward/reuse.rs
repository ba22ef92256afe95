//! When connections to an agent are used again, and what happens when that was a mistake.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_control::{Access, Port};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::{get, post};
use futures_util::stream;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener};

use crate::world::{TOKEN, Upstream, World, front, serve};
use crate::{key, send, text};

/// Requests after which a connection must have been used again: it comes back to the pool in a
/// task of its own, so any single request may just miss it.
const ATTEMPTS: usize = 500;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

async fn ask(to: SocketAddr, body: impl Into<Body>) -> (StatusCode, Bytes) {
    let response = send(to, Request::post("/").body(body.into()).unwrap()).await;
    let status = response.status();
    (status, response.into_body().collect().await.unwrap().to_bytes())
}

/// Reads one request of `ask("ping")`; false when the connection ended instead.
async fn hear(stream: &mut TcpStream) -> bool {
    let mut heard = Vec::new();
    while !heard.ends_with(b"ping") {
        match stream.read_buf(&mut heard).await {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
    true
}

/// Answers the first request of every connection, says `last` to the second one and closes;
/// counts those second requests.
async fn breaking(last: &'static [u8]) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let broken = Arc::new(AtomicUsize::new(0));
    let count = broken.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let answered = hear(&mut stream).await && stream.write_all(OK).await.is_ok();
                if answered && hear(&mut stream).await {
                    count.fetch_add(1, Ordering::SeqCst);
                    let _ = stream.write_all(last).await;
                }
            });
        }
    });
    (address, broken)
}

#[tokio::test]
async fn connections_to_the_agent_are_used_again_by_every_kind_of_caller() {
    let upstream = serve(Router::new().route("/", post(|body: Bytes| async { body }))).await;
    for access in [key(), Access::Token(TOKEN.into()), Access::Signed] {
        let world = World::new(Some(upstream));
        let front = front(world.clone(), access, Port::Agent).await;
        for _ in 0..30 {
            assert_eq!(ask(front, "ping").await, (StatusCode::OK, "ping".into()));
        }
        assert!(world.connects() <= 15, "{} connections for 30 requests", world.connects());
    }
}

#[tokio::test]
async fn an_idle_connection_is_not_a_way_around_pause_or_token() {
    let upstream = serve(Router::new().route("/", get(|| async { "pong" }))).await;
    let world = World::new(Some(upstream));
    let front = front(world.clone(), Access::Token(TOKEN.into()), Port::Agent).await;
    loop {
        let before = world.connects();
        assert_eq!(text(front, "/").await.0, StatusCode::OK);
        if world.connects() == before {
            break;
        }
    }
    world.paused.store(true, Ordering::SeqCst);
    assert_eq!(text(front, "/").await.0, StatusCode::CONFLICT);
    world.paused.store(false, Ordering::SeqCst);
    assert_eq!(text(front, "/").await, (StatusCode::OK, "pong".to_owned()));
}

#[tokio::test]
async fn a_small_request_survives_an_idle_connection_that_died() {
    let (upstream, broken) = breaking(b"").await;
    let front = front(World::new(Some(upstream)), key(), Port::Agent).await;
    for _ in 0..ATTEMPTS {
        assert_eq!(ask(front, "ping").await, (StatusCode::OK, "ok".into()));
        if broken.load(Ordering::SeqCst) > 2 {
            return;
        }
    }
    panic!("no connection was used again in {ATTEMPTS} requests");
}

#[tokio::test]
async fn a_request_that_was_being_answered_is_not_sent_again() {
    let (upstream, broken) = breaking(b"HTTP/1.1 2").await;
    let front = front(World::new(Some(upstream)), key(), Port::Agent).await;
    for _ in 0..ATTEMPTS {
        let (status, _) = ask(front, "ping").await;
        if broken.load(Ordering::SeqCst) == 1 {
            assert_eq!(status, StatusCode::IM_A_TEAPOT);
            return;
        }
        assert_eq!(status, StatusCode::OK);
    }
    panic!("no connection was used again in {ATTEMPTS} requests");
}

#[tokio::test]
async fn a_body_that_streams_has_a_connection_of_its_own() {
    let upstream = serve(Router::new().route("/", post(|body: Bytes| async { body }))).await;
    let world = World::new(Some(upstream));
    let front = front(world.clone(), key(), Port::Agent).await;
    assert_eq!(ask(front, "ping").await.0, StatusCode::OK);
    let large = || Bytes::from(vec![7; 64 * 1024 + 1]);
    let chunks = || stream::iter([Ok::<_, std::io::Error>("pi"), Ok("ng")]);
    for _ in 0..10 {
        let before = world.connects();
        assert_eq!(ask(front, Body::from_stream(chunks())).await.1, "ping");
        assert_eq!(ask(front, large()).await.1, large());
        assert_eq!(world.connects(), before + 2);
    }
}

#[tokio::test]
async fn a_connection_whose_request_was_refused_is_not_used_again() {
    let refuse = || async { StatusCode::BAD_REQUEST };
    let upstream = serve(Router::new().route("/", post(refuse))).await;
    let world = World::new(Some(upstream));
    let front = front(world.clone(), key(), Port::Agent).await;
    for requests in 1..=20 {
        assert_eq!(ask(front, "ping").await.0, StatusCode::BAD_REQUEST);
        assert_eq!(world.connects(), requests);
    }
}

/// Answers as soon as it has heard anything, and closes with the rest unread.
fn hasty(listener: UnixListener) {
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 100]).await;
            let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\n\r\nenough!";
            let _ = stream.write_all(answer).await;
        }
    });
}

#[tokio::test]
async fn an_answer_that_came_before_the_end_of_the_request_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agent");
    hasty(UnixListener::bind(&socket).unwrap());
    let world = World::over(Some(Upstream::Socket(socket)));
    let front = front(world, key(), Port::Agent).await;
    for _ in 0..50 {
        let answer = ask(front, vec![7; 1 << 20]).await;
        assert_eq!(answer, (StatusCode::BAD_REQUEST, "enough!".into()));
    }
}

#[tokio::test]
async fn a_request_that_breaks_off_never_reaches_the_agent() {
    let (upstream, _) = breaking(b"").await;
    let world = World::new(Some(upstream));
    let front = front(world.clone(), key(), Port::Agent).await;
    let mut stream = TcpStream::connect(front).await.unwrap();
    let cut = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nping";
    stream.write_all(cut).await.unwrap();
    stream.shutdown().await.unwrap();
    stream.read_to_end(&mut Vec::new()).await.unwrap();
    assert_eq!(world.connects(), 0);
}
