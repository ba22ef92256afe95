use atoll_guest::{Guest, Options, Role};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");
pub(crate) const STREAM: (&str, &str) = ("Content-Type", "application/connect+json");
/// How long anything may take that happens at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// A served guest with a directory of its own.
pub(crate) struct Sandbox {
    pub(crate) address: SocketAddr,
    pub(crate) guest: Arc<Guest>,
    directory: TempDir,
}

/// A whole answer, its body unchunked.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// An answer whose body is still arriving.
pub(crate) struct Arriving {
    stream: TcpStream,
    raw: Vec<u8>,
    pub(crate) head: String,
    body: Vec<u8>,
    is_chunked: bool,
}

impl Sandbox {
    pub(crate) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// Serves with a workdir of its own unless one is given.
    pub(crate) async fn start_with(mut options: Options) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = std::env::var("PATH").expect("tests have a PATH");
        options.env.entry("PATH".to_owned()).or_insert(path);
        options.env.insert("EXECD_ENVS".to_owned(), "/dev/null".to_owned());
        options.cwd.get_or_insert_with(|| directory.path().to_owned());
        let guest = Guest::new(Role::Guest, options).expect("a guest");
        // Nested as in the agent, so that paths are those that the server sends.
        let app =
            axum::Router::new().nest_service("/envd", atoll_e2b::guest::router(Arc::clone(&guest)));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, guest, directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text_path(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Arriving {
        let mut stream = TcpStream::connect(self.address).await.expect("the guest listens");
        let mut head =
            format!("{method} /envd{target} HTTP/1.1\r\nHost: guest\r\nConnection: close\r\n");
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.expect("the guest reads");
        // A refused body may not be read to its end.
        stream.write_all(body).await.ok();
        Arriving::begin(stream).await
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

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.call("GET", target, &[], b"").await
    }

    /// A unary call.
    pub(crate) async fn rpc(&self, method: &str, message: Value) -> Answer {
        self.rpc_with(method, message, &[]).await
    }

    pub(crate) async fn rpc_with(
        &self,
        method: &str,
        message: Value,
        headers: &[(&str, &str)],
    ) -> Answer {
        let headers = [&[JSON], headers].concat();
        let target = format!("/{}", service(method));
        self.call("POST", &target, &headers, message.to_string().as_bytes()).await
    }

    /// A call that answers with a stream.
    pub(crate) async fn stream(&self, method: &str, message: Value) -> Arriving {
        self.stream_with(method, message, &[]).await
    }

    pub(crate) async fn stream_with(
        &self,
        method: &str,
        message: Value,
        headers: &[(&str, &str)],
    ) -> Arriving {
        let headers = [&[STREAM], headers].concat();
        let target = format!("/{}", service(method));
        self.send("POST", &target, &headers, &framed(&[message])).await
    }

    /// Runs shell text to its end.
    pub(crate) async fn run(&self, text: &str) -> Ran {
        self.run_with(shell(text), &[]).await
    }

    pub(crate) async fn run_with(&self, message: Value, headers: &[(&str, &str)]) -> Ran {
        let mut stream = self.stream_with("Start", message, headers).await;
        let mut ran = Ran::default();
        while let Some(event) = stream.event().await {
            ran.take(event);
        }
        ran
    }
}

/// What a process printed, and how it ended.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) end: Option<Value>,
    pub(crate) error: Option<Value>,
}

impl Ran {
    fn take(&mut self, event: Value) {
        if let Some(bytes) = event["event"]["data"]["stdout"].as_str() {
            self.stdout.extend(decode(bytes));
        } else if let Some(bytes) = event["event"]["data"]["stderr"].as_str() {
            self.stderr.extend(decode(bytes));
        } else if !event["event"]["end"].is_null() {
            self.end = Some(event["event"]["end"].clone());
        } else if !event["error"].is_null() {
            self.error = Some(event["error"].clone());
        }
    }

    pub(crate) fn out(&self) -> String {
        assert!(self.error.is_none(), "{self:?}");
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// A message that starts shell text.
pub(crate) fn shell(text: &str) -> Value {
    json!({"process": {"cmd": "/bin/bash", "args": ["-c", text]}, "stdin": false})
}

pub(crate) fn decode(text: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(text).expect("base64")
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn service(method: &str) -> String {
    let of_files = [
        "Stat",
        "MakeDir",
        "Move",
        "ListDir",
        "Remove",
        "WatchDir",
        "CreateWatcher",
        "GetWatcherEvents",
        "RemoveWatcher",
    ];
    match of_files.contains(&method) {
        true => format!("filesystem.Filesystem/{method}"),
        false => format!("process.Process/{method}"),
    }
}

/// Messages in frames.
pub(crate) fn framed(messages: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        let text = message.to_string();
        bytes.push(0);
        bytes.extend((text.len() as u32).to_be_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

impl Arriving {
    async fn begin(stream: TcpStream) -> Self {
        let mut arriving = Self {
            stream,
            raw: Vec::new(),
            head: String::new(),
            body: Vec::new(),
            is_chunked: false,
        };
        loop {
            if let Some(end) = find(&arriving.raw, b"\r\n\r\n") {
                arriving.head = String::from_utf8_lossy(&arriving.raw[..end]).to_ascii_lowercase();
                arriving.raw.drain(..end + 4);
                arriving.is_chunked = arriving.head.contains("transfer-encoding: chunked");
                return arriving;
            }
            assert!(arriving.read().await, "no head: {:?}", String::from_utf8_lossy(&arriving.raw));
        }
    }

    async fn read(&mut self) -> bool {
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.raw)).await;
        read.unwrap_or_else(|_| panic!("nothing came: {}", self.head)).unwrap_or(0) > 0
    }

    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status")
    }

    /// Moves whole chunks into the body.
    fn unchunk(&mut self) {
        if !self.is_chunked {
            return self.body.append(&mut self.raw);
        }
        while let Some(end) = find(&self.raw, b"\r\n") {
            let size = std::str::from_utf8(&self.raw[..end]).expect("ASCII");
            let size = usize::from_str_radix(size, 16).expect("a chunk size");
            if self.raw.len() < end + 2 + size + 2 {
                return;
            }
            self.body.extend_from_slice(&self.raw[end + 2..end + 2 + size]);
            self.raw.drain(..end + 2 + size + 2);
        }
    }

    /// The next message or end of a stream; nothing after the end.
    pub(crate) async fn event(&mut self) -> Option<Value> {
        loop {
            self.unchunk();
            if self.body.len() >= 5 {
                let length = u32::from_be_bytes(self.body[1..5].try_into().expect("four bytes"));
                let whole = 5 + length as usize;
                if self.body.len() >= whole {
                    let message = serde_json::from_slice(&self.body[5..whole]).expect("JSON");
                    self.body.drain(..whole);
                    return Some(message);
                }
            }
            if !self.read().await {
                assert!(self.body.is_empty(), "the stream ended inside a frame");
                return None;
            }
        }
    }

    /// The pid that the first message tells.
    pub(crate) async fn pid(&mut self) -> u64 {
        let event = self.event().await.expect("a first message");
        event["event"]["start"]["pid"].as_u64().unwrap_or_else(|| panic!("{event}"))
    }

    /// Reads data until the text has come; answers everything up to then.
    pub(crate) async fn until(&mut self, kind: &str, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            let event = self.event().await.unwrap_or_else(|| panic!("ended after {seen:?}"));
            if let Some(bytes) = event["event"]["data"][kind].as_str() {
                seen.push_str(&String::from_utf8_lossy(&decode(bytes)));
            }
            assert!(
                event["error"].is_null() && event["event"]["end"].is_null(),
                "{seen:?} {event}"
            );
        }
        seen
    }

    /// The message of the process's end; data on the way is passed over.
    pub(crate) async fn end(&mut self) -> Value {
        loop {
            let event = self.event().await.expect("an end");
            if !event["event"]["end"].is_null() {
                return event["event"]["end"].clone();
            }
            assert!(event["error"].is_null(), "{event}");
        }
    }

    /// The error that a stream ends with.
    pub(crate) async fn error(&mut self) -> Value {
        loop {
            let event = self.event().await.expect("an end of the stream");
            if !event["error"].is_null() {
                return event["error"].clone();
            }
        }
    }

    pub(crate) async fn finish(mut self) -> Answer {
        while self.read().await {}
        self.unchunk();
        Answer { status: self.status(), head: self.head, body: self.body }
    }
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    /// Asserts an error with this status and code, and a message worth reading.
    pub(crate) fn refused(&self, status: u16, code: impl Into<Value>) {
        let body = self.json();
        assert_eq!((self.status, &body["code"]), (status, &code.into()), "{body}");
        assert!(body["message"].as_str().is_some_and(|message| message.len() > 10), "{body}");
    }
}

/// Waits until something is so.
pub(crate) async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "it never came true");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
