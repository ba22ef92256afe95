//! The smallest HTTP client there is, for streams into sandboxes.

use atoll_control::BoxedIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Sends `GET path` and returns the status of the answer.
///
/// # Panics
/// When the stream breaks or the answer is not HTTP.
pub async fn get(stream: BoxedIo, path: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nhost: sandbox\r\nconnection: close\r\n\r\n");
    ask(stream, &request).await.0
}

/// Sends `POST path` with a JSON body and returns the status and all that follows it.
///
/// # Panics
/// When the stream breaks or the answer is not HTTP.
pub async fn post(stream: BoxedIo, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: sandbox\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    ask(stream, &request).await
}

async fn ask(mut stream: BoxedIo, request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).await.expect("the request is written");
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await;
    read.expect("the answer is read");
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("this is no HTTP answer: {text:?}"));
    (status, text.into_owned())
}
