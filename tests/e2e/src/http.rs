//! A very small HTTP/1.1 client: keep-alive, one request at a time, nothing shared. The benchmark
//! measures the server with it, so it does as little as it can.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Longest silence of a server.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest answer.
const BODY_BYTES_MAX: usize = 64 << 20;

/// One keep-alive connection to one server.
pub struct Client {
    address: SocketAddr,
    headers: String,
    stream: Option<BufReader<TcpStream>>,
}

/// What the server said.
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Header lines as sent.
    headers: Vec<(String, String)>,
    /// Body, complete.
    pub body: Vec<u8>,
}

impl Client {
    /// A client that sends `headers` with every request.
    pub fn new(address: SocketAddr, headers: &[(&str, &str)]) -> Self {
        let headers = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        Self { address, headers, stream: None }
    }

    /// One exchange. A kept connection that the server has closed meanwhile is replaced once.
    pub fn send(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<Answer> {
        self.send_with(method, path, kind, &[], body)
    }

    /// One exchange with more headers.
    pub fn send_with(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        more: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer> {
        let kept = self.stream.is_some();
        let head = self.head(method, path, kind, more, body.len());
        match self.exchange(method, &head, body) {
            Err(_) if kept => {
                self.stream = None;
                self.exchange(method, &head, body)
            }
            answer => answer,
        }
        .with_context(|| format!("{method} {path}"))
    }

    fn head(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        more: &[(&str, &str)],
        length: usize,
    ) -> String {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.address);
        head.push_str(&self.headers);
        for (name, value) in more {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if length > 0 {
            head.push_str(&format!("Content-Type: {kind}\r\n"));
        }
        head.push_str(&format!("Content-Length: {length}\r\n\r\n"));
        head
    }

    /// Sends JSON (or nothing), wants a success, returns its JSON (or null).
    pub fn json(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let text = body.map(Value::to_string).unwrap_or_default();
        let answer = self.send(method, path, "application/json", text.as_bytes())?;
        ensure!(answer.status < 300, "{method} {path}: {}", answer.explain());
        if answer.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer.body).with_context(|| format!("{method} {path}: no JSON"))
    }

    fn exchange(&mut self, method: &str, head: &str, body: &[u8]) -> Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.open()?,
        };
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(body);
        stream.get_mut().write_all(&bytes).context("can't send")?;
        let answer = read_answer(&mut stream, method)?;
        if answer.header("connection") != Some("close") {
            self.stream = Some(stream);
        }
        Ok(answer)
    }

    fn open(&self) -> Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE)
            .with_context(|| format!("can't connect to {}", self.address))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(BufReader::new(stream))
    }
}

impl Answer {
    /// A header's value; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Status and the beginning of the body, for messages.
    pub fn explain(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.body).chars().take(500).collect();
        format!("status {}: {text}", self.status)
    }
}

fn read_answer(stream: &mut impl BufRead, method: &str) -> Result<Answer> {
    let status_line = read_line(stream)?;
    let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status: u16 = status.with_context(|| format!("no status line: {status_line:?}"))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').context("a header without a colon")?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut answer = Answer { status, headers, body: Vec::new() };
    if method == "HEAD" || status == 204 {
        return Ok(answer);
    }
    if answer.header("transfer-encoding") == Some("chunked") {
        read_chunks(stream, &mut answer.body)?;
    } else if let Some(length) = answer.header("content-length") {
        let length = length.parse().context("a content-length that is no number")?;
        read_exactly(stream, length, &mut answer.body)?;
    } else {
        stream.take(BODY_BYTES_MAX as u64).read_to_end(&mut answer.body).context("cut off")?;
    }
    Ok(answer)
}

fn read_chunks(stream: &mut impl BufRead, body: &mut Vec<u8>) -> Result<()> {
    loop {
        let line = read_line(stream)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = usize::from_str_radix(digits, 16).context("a chunk without a length")?;
        read_exactly(stream, length, body)?;
        read_line(stream)?;
        if length == 0 {
            return Ok(());
        }
    }
}

fn read_exactly(stream: &mut impl BufRead, length: usize, body: &mut Vec<u8>) -> Result<()> {
    ensure!(body.len() + length <= BODY_BYTES_MAX, "the answer is too long");
    let start = body.len();
    body.resize(start + length, 0);
    stream.read_exact(&mut body[start..]).context("cut off")
}

fn read_line(stream: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    if stream.take(64 << 10).read_line(&mut line).context("no answer")? == 0 {
        bail!("the server closed the connection");
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::read_answer;

    fn body(mut wire: &[u8]) -> anyhow::Result<Vec<u8>> {
        read_answer(&mut wire, "GET").map(|answer| answer.body)
    }

    #[test]
    fn bodies_are_read_whole() {
        let sized = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd";
        assert_eq!(body(sized).unwrap(), b"abc");
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n";
        assert_eq!(body(chunked).unwrap(), b"abc");
    }

    #[test]
    fn a_cut_off_answer_is_an_error() {
        assert!(body(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").is_err());
        assert!(body(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab").is_err());
        assert!(body(b"").is_err());
    }
}
