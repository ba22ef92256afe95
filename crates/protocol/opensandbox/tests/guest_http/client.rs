use atoll_guest::{Guest, Options, Role};
use serde_json::Value;
use std::{net::SocketAddr, path::PathBuf};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A served guest with a directory of its own.
pub(crate) struct Sandbox {
    pub(crate) address: SocketAddr,
    directory: TempDir,
}

/// An answer, its body unchunked.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// A connection on which an answer is still arriving.
pub(crate) struct Arriving {
    stream: TcpStream,
    seen: Vec<u8>,
}

impl Sandbox {
    pub(crate) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    pub(crate) async fn start_with(mut options: Options) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("envs/.env").to_string_lossy().into_owned();
        options.env.insert("EXECD_ENVS".to_owned(), file);
        let path = std::env::var("PATH").expect("tests have a PATH");
        options.env.entry("PATH".to_owned()).or_insert(path);
        options.cwd.get_or_insert_with(|| directory.path().to_owned());
        let guest = Guest::new(Role::Guest, options).expect("a guest");
        let app = atoll_opensandbox::guest::router(guest);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, directory }
    }

    /// A path inside the sandbox's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text_path(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.call("GET", target, &[], b"").await
    }

    pub(crate) async fn delete(&self, target: &str) -> Answer {
        self.call("DELETE", target, &[], b"").await
    }

    pub(crate) async fn post(&self, target: &str, body: Value) -> Answer {
        let headers = [("Content-Type", "application/json")];
        self.call("POST", target, &headers, body.to_string().as_bytes()).await
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.send(method, target, headers, body).await.finish().await
    }

    /// Sends a request and leaves the answer to be read bit by bit.
    pub(crate) async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Arriving {
        let mut stream = TcpStream::connect(self.address).await.expect("the guest listens");
        let mut head =
            format!("{method} {target} HTTP/1.1\r\nHost: guest\r\nConnection: close\r\n");
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.expect("the guest reads");
        stream.write_all(body).await.expect("the guest reads");
        Arriving { stream, seen: Vec::new() }
    }
}

impl Arriving {
    /// Reads until the text occurs; answers everything seen so far.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        loop {
            let seen = String::from_utf8_lossy(&self.seen).into_owned();
            if seen.contains(text) {
                return seen;
            }
            let read = self.stream.read_buf(&mut self.seen).await.expect("readable");
            assert_ne!(read, 0, "the answer ended without {text:?}: {seen}");
        }
    }

    pub(crate) async fn finish(mut self) -> Answer {
        self.stream.read_to_end(&mut self.seen).await.expect("readable");
        let end = self.seen.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&self.seen[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let raw = &self.seen[end + 4..];
        let chunked = head.contains("transfer-encoding: chunked");
        let body = if chunked { unchunk(raw) } else { raw.to_vec() };
        Answer { status, head, body }
    }
}

fn unchunk(mut raw: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = raw.windows(2).position(|window| window == b"\r\n").expect("a chunk size");
        let size = std::str::from_utf8(&raw[..end]).expect("ASCII");
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&raw[end + 2..end + 2 + size]);
        raw = &raw[end + 2 + size + 2..];
    }
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// Asserts an error with this status and code, and a message worth reading.
    pub(crate) fn refused(&self, status: u16, code: &str) {
        let body = self.json();
        assert_eq!((self.status, body["code"].as_str()), (status, Some(code)), "{body}");
        assert!(body["message"].as_str().is_some_and(|message| message.len() > 10), "{body}");
    }

    pub(crate) fn ok(&self) -> &Self {
        assert_eq!(self.status, 200, "{}", self.text());
        self
    }

    /// The events of a stream, pings left out.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text());
        assert!(self.head.contains("content-type: text/event-stream"));
        let text = self.text();
        let body = text.strip_suffix("\n\n").expect("the stream ends with a whole event");
        let events = body.split("\n\n").map(|event| serde_json::from_str(event).expect("JSON"));
        events.filter(|event: &Value| event["type"] != "ping").collect()
    }

    /// The stream's texts of one kind, joined by newlines.
    pub(crate) fn output(&self, kind: &str) -> String {
        let events = self.events();
        let texts = events.iter().filter(|event| event["type"] == kind);
        texts.map(|event| event["text"].as_str().expect("text")).collect::<Vec<_>>().join("\n")
    }

    /// The exit code as a client infers it; panics unless there is exactly one last event.
    pub(crate) fn exit_code(&self) -> i32 {
        let events = self.events();
        let (last, before) = events.split_last().expect("events");
        let terminal =
            |event: &Value| event["type"] == "error" || event["type"] == "execution_complete";
        assert!(before.iter().all(|event| !terminal(event)), "{events:?}");
        match last["type"].as_str() {
            Some("execution_complete") => 0,
            Some("error") => {
                last["error"]["evalue"].as_str().and_then(|v| v.parse().ok()).expect("a code")
            }
            other => panic!("ended with {other:?}"),
        }
    }
}
