//! Files of a sandbox, streamed both ways.

use reqwest::multipart::{Form, Part};
use reqwest::{Body, Method, Response};
use serde_json::json;
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use super::{Client, wire};
use crate::error::Error;

impl Client {
    /// The bytes of a file in a sandbox.
    pub(crate) async fn download(&self, id: &str, path: &str) -> Result<Response, Error> {
        let agent = self.agent(id).await?;
        let url = format!("{agent}/files/download?path={}", wire::escape(path));
        self.send(self.request_url(Method::GET, url)).await
    }

    /// Writes a file in a sandbox. `mode` is octal digits read as a decimal number, which is how
    /// the wire has it: 644 means rw-r--r--.
    pub(crate) async fn upload(
        &self,
        id: &str,
        path: &str,
        mode: u32,
        content: impl AsyncRead + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let url = format!("{}/files/upload", self.agent(id).await?);
        let metadata = json!({"path": path, "mode": mode}).to_string();
        let metadata = Part::text(metadata).file_name("metadata");
        let file = Part::stream(Body::wrap_stream(ReaderStream::new(content))).file_name("file");
        let form = Form::new().part("metadata", metadata).part("file", file);
        self.send(self.request_url(Method::POST, url).multipart(form)).await.map(|_| ())
    }
}
