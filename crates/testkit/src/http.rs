//! The smallest HTTP client there is, for streams into sandboxes.

use atoll_control::BoxedIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Sends `GET path` and returns the status of the answer.
///
/// # Panics
/// When the stream breaks or the answer is not HTTP.
pub async fn get(mut stream: BoxedIo, path: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nhost: sandbox\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the request is written");
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await;
    read.expect("the answer is read");
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("this is no HTTP answer: {text:?}"))
}
