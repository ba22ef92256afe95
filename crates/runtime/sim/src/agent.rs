//! The far end of a connection to a simulated agent.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Bytes that may wait in either direction.
pub(crate) const PIPE_BYTES: usize = 16 * 1024;

/// Answers one HTTP/1.1 request: `GET /ping` with 200, anything else with 404.
pub(crate) async fn serve(mut stream: DuplexStream) {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut part = [0; 1024];
        match stream.read(&mut part).await {
            Ok(count) if count > 0 && request.len() < REQUEST_BYTES_MAX => {
                request.extend_from_slice(&part[..count]);
            }
            Ok(_) | Err(_) => return,
        }
    }
    let status = if request.starts_with(b"GET /ping ") { "200 OK" } else { "404 Not Found" };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    // A caller that hung up doesn't want the answer.
    let _hung_up = stream.write_all(head.as_bytes()).await;
}
