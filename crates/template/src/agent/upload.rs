//! A file as the multipart body that the agent's upload takes.

use std::io;
use std::path::Path;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::Body;
use crate::ids;

const CHUNK_BYTES: usize = 256 * 1024;

/// The content type, the length and the body.
pub(super) async fn body(file: &Path, target: &str) -> io::Result<(String, u64, Body)> {
    let file = tokio::fs::File::open(file).await?;
    let size = file.metadata().await?.len();
    let boundary = format!("atoll-{}", ids::hex(&ids::random::<16>()));
    let metadata = json!({ "path": target, "mode": 600 });
    let before = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"metadata\"; filename=\"metadata\"\r\n\
         Content-Type: application/json\r\n\r\n{metadata}\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let after = format!("\r\n--{boundary}--\r\n");
    let length = before.len() as u64 + size + after.len() as u64;
    // No more than was promised, should the file grow meanwhile.
    let content = stream::try_unfold(file.take(size), |mut file| async move {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let read = (&mut file).take(CHUNK_BYTES as u64).read_to_end(&mut chunk).await?;
        Ok::<_, io::Error>((read > 0).then(|| (Bytes::from(chunk), file)))
    });
    let text = |text: String| stream::once(async move { Ok(Bytes::from(text)) });
    let whole = text(before).chain(content).chain(text(after));
    let body = StreamBody::new(whole.map(|part| part.map(Frame::data)));
    Ok((format!("multipart/form-data; boundary={boundary}"), length, BodyExt::boxed_unsync(body)))
}
