//! A small HTTP server that answers as a test tells it to and counts what it is asked.

use crate::fixture::{TestImage, digest};
use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

/// What a client sent.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
}

/// What it gets.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Bytes of the body that are really sent.
    pub(crate) sent: usize,
}

impl Reply {
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::status(200, body)
    }

    pub(crate) fn status(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self { status, headers: Vec::new(), sent: body.len(), body }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A server that lasts as long as the test's process.
pub(crate) struct Server {
    pub(crate) host: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &seen, &*answer));
            }
        });
        Self { host, requests }
    }

    /// A registry that holds images under `name:tag` references.
    pub(crate) fn registry(images: &[(&str, &str, &TestImage)]) -> Self {
        let content = contents(images);
        Self::start(move |request| found(&content, &request.path))
    }

    pub(crate) fn reference(&self, name: &str) -> String {
        format!("{}/{name}", self.host)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// How often a path that ends so was asked for.
    pub(crate) fn count(&self, method: &str, ending: &str) -> usize {
        let matching = |r: &&Request| r.method == method && r.path.ends_with(ending);
        self.requests().iter().filter(matching).count()
    }
}

/// All paths of a registry with these images.
pub(crate) fn contents(images: &[(&str, &str, &TestImage)]) -> HashMap<String, Vec<u8>> {
    let mut content = HashMap::new();
    for (name, tag, image) in images {
        for target in [(*tag).to_owned(), digest(&image.manifest)] {
            content.insert(format!("/v2/{name}/manifests/{target}"), image.manifest.clone());
        }
        for blob in image.blobs() {
            content.insert(format!("/v2/{name}/blobs/{}", digest(blob)), blob.clone());
        }
    }
    content
}

pub(crate) fn found(content: &HashMap<String, Vec<u8>>, path: &str) -> Reply {
    content.get(path).map_or_else(|| Reply::status(404, "{}"), |body| Reply::ok(body.clone()))
}

fn serve(
    stream: TcpStream,
    seen: &Mutex<Vec<Request>>,
    answer: &(dyn Fn(&Request) -> Reply + Sync),
) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let mut words = first.split(' ').map(String::from);
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let mut request = Request { method, path, authorization: None };
    for line in lines.take_while(|line| !line.is_empty()) {
        if let Some((name, value)) = line.split_once(": ")
            && name.eq_ignore_ascii_case("authorization")
        {
            request.authorization = Some(value.to_owned());
        }
    }
    seen.lock().unwrap().push(request.clone());
    let reply = answer(&request);
    let length = reply.body.len();
    let mut head =
        format!("HTTP/1.1 {} X\r\ncontent-length: {length}\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    if request.method != "HEAD" {
        bytes.extend_from_slice(&reply.body[..reply.sent]);
    }
    // The client may have gone; its own result is what the test looks at.
    let _sent = (&stream).write_all(&bytes);
}
