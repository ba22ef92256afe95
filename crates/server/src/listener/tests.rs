use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::{Bounds, run};

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";

/// Turns its connection into an echo, and keeps what the request carried until that ends.
async fn echo(mut request: Request) -> Response {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        drop(request);
    });
    let headers = [("connection", "upgrade"), ("upgrade", "echo")];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

async fn open(address: std::net::SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(UPGRADE).await.unwrap();
    stream
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn a_tunnel_counts_as_a_connection_until_it_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let bounds = Bounds {
        connections_max: 1,
        header_time_max: Duration::from_secs(30),
        drain_time_max: Duration::from_secs(30),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(run(listener, Router::new().fallback(echo), bounds, async {
        let _ = stopped.await;
    }));
    let mut first = open(address).await;
    assert!(head(&mut first).await.starts_with("HTTP/1.1 101"));
    let mut second = open(address).await;
    first.write_all(b"hello").await.unwrap();
    let mut echoed = [0; 5];
    first.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"hello");
    assert!(second.try_read(&mut [0; 1]).is_err(), "the only place is taken by the tunnel");
    drop(first);
    assert!(head(&mut second).await.starts_with("HTTP/1.1 101"));
    drop(second);
    drop(stop);
    server.await.unwrap();
}
