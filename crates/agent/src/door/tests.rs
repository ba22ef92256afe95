use super::*;
use axum::routing::get;
use tokio::io::AsyncWriteExt;

const SECRET: &str = "0123456789abcdef";
const QUESTION: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

/// A server behind a guarded port; answers where it is.
async fn serve() -> SocketAddr {
    let port = Port { port: 0, secret: SECRET.to_owned() };
    let guarded = Guarded::open(port).await.expect("a free port");
    let address = guarded.address;
    let app = Router::new().route("/", get(async || "come in"));
    tokio::spawn(async move { axum::serve(guarded, app).await });
    address
}

async fn answer(to: SocketAddr, first: &str) -> String {
    let mut stream = TcpStream::connect(to).await.expect("it listens");
    let mut said = Vec::new();
    // Whoever is turned away may notice while it still speaks.
    stream.write_all(&[first.as_bytes(), QUESTION].concat()).await.ok();
    stream.read_to_end(&mut said).await.ok();
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn only_who_says_the_secret_is_answered() {
    let address = serve().await;
    let right = answer(address, SECRET).await;
    assert!(right.starts_with("HTTP/1.1 200") && right.ends_with("come in"), "{right}");
    for wrong in ["", "0123456789abcdeF", "0123456789abcde", " 0123456789abcdef"] {
        assert_eq!(answer(address, wrong).await, "", "after {wrong:?}");
    }
}

#[tokio::test]
async fn silent_strangers_keep_nobody_out() {
    let address = serve().await;
    let mut silent = Vec::new();
    for _ in 0..=STRANGERS_MAX {
        silent.push(TcpStream::connect(address).await.expect("it listens"));
    }
    assert!(answer(address, SECRET).await.ends_with("come in"));
}

#[tokio::test]
async fn an_empty_secret_opens_nothing() {
    let port = Port { port: 0, secret: String::new() };
    let mut guarded = Guarded::open(port).await.expect("a free port");
    let address = guarded.address;
    tokio::select! {
        said = answer(address, "") => assert_eq!(said, ""),
        _ = guarded.accept() => panic!("nobody may be admitted"),
    }
}
