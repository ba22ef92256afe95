use crate::client::Sandbox;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message},
};

struct Client(WebSocketStream<TcpStream>);

impl Client {
    async fn attach(sandbox: &Sandbox, id: &str, query: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(sandbox.address).await.expect("the guest listens");
        let url = format!("ws://{}/pty/{id}/ws{query}", sandbox.address);
        client_async(url, stream).await.map(|(socket, _)| Self(socket))
    }

    async fn next(&mut self) -> Message {
        self.0.next().await.expect("a frame").expect("a whole frame")
    }

    async fn control(&mut self) -> Value {
        match self.next().await {
            Message::Text(text) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("not a text frame: {other:?}"),
        }
    }

    async fn say(&mut self, value: Value) {
        self.0.send(Message::text(value.to_string())).await.expect("the guest reads");
    }

    async fn type_in(&mut self, text: &str) {
        let frame = [&[0], text.as_bytes()].concat();
        self.0.send(Message::binary(frame)).await.expect("the guest reads");
    }

    /// Collects output of one tag until it contains a text.
    async fn output_until(&mut self, tag: u8, text: &str) -> String {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(text) {
            match self.next().await {
                Message::Binary(frame) if frame[0] == tag => seen.extend_from_slice(&frame[1..]),
                other => panic!("expected output, got {other:?}"),
            }
        }
        String::from_utf8_lossy(&seen).into_owned()
    }
}

async fn open(sandbox: &Sandbox, body: Value) -> String {
    let answer = sandbox.post("/pty", body).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["session_id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_terminal_is_a_terminal_with_a_size() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox, json!({"cwd": "/", "command": "exec sh"})).await;
    let condition = sandbox.get(&format!("/pty/{id}")).await.ok().json();
    assert_eq!(condition, json!({"session_id": id, "running": false, "output_offset": 0}));
    let mut client = Client::attach(&sandbox, &id, "").await.unwrap();
    let hello = client.control().await;
    assert_eq!(hello, json!({"type": "connected", "session_id": id, "mode": "pty"}));
    client.say(json!({"type": "resize", "cols": 101, "rows": 41})).await;
    client.type_in("stty size; tty; pwd\n").await;
    let seen = client.output_until(1, "\n/\r\n").await;
    assert!(seen.contains("41 101") && seen.contains("/dev/pts/"), "{seen}");
    client.say(json!({"type": "stdin", "data": "exit 5\n"})).await;
    client.output_until(1, "exit 5").await;
    loop {
        if let Message::Text(text) = client.next().await {
            let exit: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(exit, json!({"type": "exit", "exit_code": 5}));
            break;
        }
    }
    assert_eq!(sandbox.get(&format!("/pty/{id}")).await.json()["running"], false);
}

#[tokio::test]
async fn pipes_keep_stderr_apart_and_replay_after_a_reconnect() {
    let sandbox = Sandbox::start().await;
    let command = "echo out; read a; echo err >&2; read b; echo late; read c";
    let id = open(&sandbox, json!({"command": command})).await;
    let mut client = Client::attach(&sandbox, &id, "?pty=0").await.unwrap();
    assert_eq!(client.control().await["mode"], "pipe");
    assert_eq!(client.output_until(1, "out\n").await, "out\n");
    client.type_in("x\n").await;
    assert_eq!(client.output_until(2, "err\n").await, "err\n");
    drop(client);
    let mut client = loop {
        // The guest notices that the first client left a moment later.
        match Client::attach(&sandbox, &id, "?pty=0&since=2").await {
            Ok(client) => break client,
            Err(Error::Http(answer)) => assert_eq!(answer.status(), 409),
            Err(other) => panic!("{other}"),
        }
    };
    client.control().await;
    let Message::Binary(replay) = client.next().await else { panic!("a replay") };
    assert_eq!(replay[0], 3);
    assert_eq!(replay[1..9], 2u64.to_be_bytes());
    assert_eq!(&replay[9..], b"t\nerr\n");
    client.type_in("y\n").await;
    assert_eq!(client.output_until(1, "late\n").await, "late\n");
    assert_eq!(sandbox.get(&format!("/pty/{id}")).await.json()["output_offset"], 13);
    client.say(json!({"type": "signal", "signal": "SIGKILL"})).await;
    assert_eq!(client.control().await, json!({"type": "exit", "exit_code": 137}));
}

#[tokio::test]
async fn one_client_at_a_time_unless_it_takes_over() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox, json!({"command": "cat"})).await;
    let mut first = Client::attach(&sandbox, &id, "?pty=0").await.unwrap();
    first.control().await;
    match Client::attach(&sandbox, &id, "?pty=0").await {
        Err(Error::Http(answer)) => assert_eq!(answer.status(), 409),
        _ => panic!("a second client was let in"),
    }
    let mut second = Client::attach(&sandbox, &id, "?takeover=1").await.unwrap();
    assert_eq!(second.control().await["mode"], "pipe");
    assert_eq!(first.control().await["code"], "TAKEN_OVER");
    let Message::Close(Some(frame)) = first.next().await else { panic!("a close frame") };
    assert_eq!(u16::from(frame.code), 4001);
    second.type_in("still here\n").await;
    second.output_until(1, "still here\n").await;
    sandbox.delete(&format!("/pty/{id}")).await.ok();
    assert_eq!(second.control().await["code"], "SESSION_GONE");
    sandbox.get(&format!("/pty/{id}")).await.refused(404, "SESSION_GONE");
    sandbox.delete(&format!("/pty/{id}")).await.refused(404, "SESSION_GONE");
}

#[tokio::test]
async fn what_a_terminal_does_not_understand_it_says() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox, json!({"command": "cat"})).await;
    let mut client = Client::attach(&sandbox, &id, "?pty=0").await.unwrap();
    client.control().await;
    client.say(json!({"type": "ping"})).await;
    assert_eq!(client.control().await, json!({"type": "pong"}));
    client.say(json!({"type": "dance"})).await;
    assert_eq!(client.control().await["code"], "INVALID_FRAME");
    client.0.send(Message::binary(vec![9, 9])).await.unwrap();
    assert_eq!(client.control().await["code"], "INVALID_FRAME");
    client.say(json!({"type": "signal", "signal": "SIGNOPE"})).await;
    assert_eq!(client.control().await["code"], "INVALID_FRAME");
    sandbox.delete(&format!("/pty/{id}")).await.ok();
    let lost = open(&sandbox, json!({"cwd": "/no/such"})).await;
    let mut client = Client::attach(&sandbox, &lost, "").await.unwrap();
    assert_eq!(client.control().await["code"], "START_FAILED");
}
