use crate::client::Sandbox;
use axum::{
    Router,
    extract::{Request, WebSocketUpgrade, ws::Message},
    routing::{any, get},
};
use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::{client_async, tungstenite::Message as ClientMessage};

/// A service inside the sandbox: echoes requests, and WebSocket messages at `/ws`.
async fn service() -> u16 {
    let echo = |request: Request| async move {
        let (parts, body) = request.into_parts();
        let token = parts.headers.contains_key("x-execd-access-token");
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_default();
        format!("{} {} token={token} {}", parts.method, parts.uri, String::from_utf8_lossy(&body))
    };
    let socket = |upgrade: WebSocketUpgrade| async {
        upgrade.on_upgrade(|mut socket| async move {
            while let Some(Ok(Message::Text(text))) = socket.recv().await {
                let reply = format!("echo {text}");
                socket.send(Message::Text(reply.into())).await.expect("the client reads");
            }
        })
    };
    let app = Router::new().route("/ws", get(socket)).fallback(any(echo));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move { axum::serve(listener, app).await });
    port
}

#[tokio::test]
async fn requests_reach_ports_inside_unchanged() {
    let sandbox = Sandbox::start().await;
    let port = service().await;
    let headers = [("X-EXECD-ACCESS-TOKEN", "t")];
    let target = format!("/proxy/{port}/a%20b/c?x=1&y=%2F");
    let answer = sandbox.call("PUT", &target, &headers, b"body").await;
    assert_eq!(answer.ok().text(), "PUT /a%20b/c?x=1&y=%2F token=false body");
    for target in [format!("/proxy/{port}"), format!("/proxy/{port}/")] {
        assert_eq!(sandbox.get(&target).await.ok().text(), "GET / token=false ");
    }
    assert_eq!(sandbox.get("/proxy/44772/ping").await.status, 200);
    let own = sandbox.get("/proxy/44772/files/info?path=/").await;
    assert_eq!(own.ok().json()["/"]["type"], "directory");
}

#[tokio::test]
async fn bad_ports_and_silent_ports_are_told() {
    let sandbox = Sandbox::start().await;
    for port in ["0", "65536", "x"] {
        sandbox.get(&format!("/proxy/{port}/")).await.refused(400, "INVALID_REQUEST_BODY");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    sandbox.get(&format!("/proxy/{port}/")).await.refused(502, "RUNTIME_ERROR");
}

#[tokio::test]
async fn websockets_pass_through() {
    let sandbox = Sandbox::start().await;
    let port = service().await;
    let stream = TcpStream::connect(sandbox.address).await.unwrap();
    let url = format!("ws://{}/proxy/{port}/ws", sandbox.address);
    let (mut socket, _) = client_async(url, stream).await.unwrap();
    socket.send(ClientMessage::text("hello")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), ClientMessage::text("echo hello"));
}
