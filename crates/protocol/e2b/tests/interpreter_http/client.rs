use atoll_guest::{Guest, Options, Role, settings::Values};
use serde_json::{Value, json};
use std::{collections::BTreeMap, net::SocketAddr, path::Path, sync::Arc};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

const PYTHON: &str = "ATOLL_KERNEL_PYTHON";

/// A served guest whose image has the kernels of the code interpreter.
pub(crate) struct Sandbox {
    pub(crate) guest: Arc<Guest>,
    address: SocketAddr,
    env: BTreeMap<String, String>,
    directory: TempDir,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// An execution's stream as it arrives.
pub(crate) struct Lines {
    reader: BufReader<TcpStream>,
    text: Vec<u8>,
}

/// The folder in which Jupyter's data of the interpreter under test lies.
fn jupyter_path() -> String {
    let python = std::env::var(PYTHON).unwrap_or_else(|_| {
        panic!(
            "{PYTHON} must name the Python of a built code-interpreter tree: run the tests with \
             `cargo xtask test unit`, or build one with `cargo run -p atoll-interpreter-image -- \
             FOLDER` and set {PYTHON}=PRINTED/opt/code-interpreter/bin/python3"
        )
    });
    let prefix = Path::new(&python).ancestors().nth(2).expect("PREFIX/bin/python3");
    prefix.join("share/jupyter").to_string_lossy().into_owned()
}

impl Sandbox {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let home = directory.path().to_string_lossy().into_owned();
        let path = std::env::var("PATH").expect("tests have a PATH");
        let mut env: BTreeMap<String, String> = [
            ("PATH", path),
            ("JUPYTER_PATH", jupyter_path()),
            ("EXECD_ENVS", format!("{home}/.env")),
            ("HOME", home),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        env.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let cwd = Some(directory.path().to_owned());
        let options = Options { env: env.clone(), cwd, ..Options::default() };
        let guest = Guest::new(Role::Guest, options).expect("a guest");
        let app = atoll_e2b::interpreter::router(Arc::clone(&guest));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { guest, address, env, directory }
    }

    /// Where the sandbox's code may write.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Gives the sandbox other variables, as a claim does.
    pub(crate) fn claim_with(&self, name: &str, value: &str) {
        let mut env = self.env.clone();
        env.insert(name.to_owned(), value.to_owned());
        let workdir = Some(self.directory.path().to_owned());
        self.guest.settings().replace(Values { env, user: None, workdir });
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.expect("a request goes out");
        stream.write_all(body.as_bytes()).await.expect("a body goes out");
        BufReader::new(stream)
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut reader = self.send(method, path, &body).await;
        let (status, is_chunked) = head(&mut reader).await;
        let mut body = Vec::new();
        if is_chunked {
            while chunk(&mut reader, &mut body).await {}
        } else {
            reader.read_to_end(&mut body).await.expect("a body");
        }
        Answer { status, body: String::from_utf8(body).expect("text") }
    }

    /// Runs code in the default context of Python; answers all lines.
    pub(crate) async fn run(&self, code: &str) -> Vec<Value> {
        self.execute(&json!({"code": code})).await
    }

    pub(crate) async fn execute(&self, request: &Value) -> Vec<Value> {
        let answer = self.call("POST", "/execute", request).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let lines: Vec<Value> =
            answer.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.last(), Some(&json!({"type": "end_of_execution"})), "{lines:?}");
        lines
    }

    /// Runs code and leaves its stream open.
    pub(crate) async fn begin(&self, request: &Value) -> Lines {
        let mut reader = self.send("POST", "/execute", &request.to_string()).await;
        assert_eq!(head(&mut reader).await, (200, true));
        Lines { reader, text: Vec::new() }
    }
}

impl Lines {
    /// The next line; nothing at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("JSON"));
            }
            if !chunk(&mut self.reader, &mut self.text).await {
                return None;
            }
        }
    }

    /// Reads up to a line of this kind.
    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        while let Some(line) = self.next().await {
            if line["type"] == kind {
                return line;
            }
        }
        panic!("the stream ended without a line of type {kind}");
    }
}

async fn head(reader: &mut BufReader<TcpStream>) -> (u16, bool) {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut text).await.expect("a head"), 0, "{text}");
    }
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    (status, text.to_lowercase().contains("transfer-encoding: chunked"))
}

/// Appends one chunk; false after the last.
async fn chunk(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> bool {
    let mut size = String::new();
    if reader.read_line(&mut size).await.expect("a chunk") == 0 {
        return false;
    }
    let size = usize::from_str_radix(size.trim(), 16).expect("a chunk's size");
    let mut bytes = vec![0; size + 2];
    reader.read_exact(&mut bytes).await.expect("a chunk");
    body.extend_from_slice(&bytes[..size]);
    size > 0
}

/// All text of one kind, joined.
pub(crate) fn printed(lines: &[Value], kind: &str) -> String {
    let matching = lines.iter().filter(|line| line["type"] == kind);
    matching.map(|line| line["text"].as_str().expect("text")).collect()
}

/// The only line of one kind.
pub(crate) fn only<'a>(lines: &'a [Value], kind: &str) -> &'a Value {
    let matching: Vec<&Value> = lines.iter().filter(|line| line["type"] == kind).collect();
    assert_eq!(matching.len(), 1, "{kind} in {lines:?}");
    matching[0]
}
