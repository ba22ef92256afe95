//! Speaking to the agent of a builder: commands and files over its own HTTP interface.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Access, Control, Port};
use atoll_core::{Error, SandboxId};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::json;

mod events;
mod upload;

use events::Events;
pub(crate) use events::{Outcome, Stream};

/// How long an answer may come after the command's own time is up.
const GRACE: Duration = Duration::from_secs(10);
/// How long a stream into the sandbox may take to open.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes read of a refusal.
const REFUSAL_BYTES_MAX: usize = 16 * 1024;
/// How long files may take to get in.
const UPLOAD_TIME_MAX: Duration = Duration::from_secs(15 * 60);

/// Why the agent could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error("the builder can't be reached: {0}")]
    Connect(Error),
    #[error("the builder did not answer within {} seconds", .0.as_secs())]
    Slow(Duration),
    #[error("the connection to the builder broke: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the builder refused ({status}): {said}")]
    Refused { status: StatusCode, said: String },
    #[error("the builder's answer can't be understood: {0}")]
    Strange(String),
    #[error("reading uploaded files: {0}")]
    File(#[from] std::io::Error),
}

/// The body of a request.
type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) argv: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) time_max: Duration,
}

/// The agent of one sandbox.
#[derive(Clone)]
pub(crate) struct Agent {
    control: Arc<dyn Control>,
    access: Access,
    id: SandboxId,
}

impl Agent {
    pub(crate) fn new(control: Arc<dyn Control>, access: Access, id: SandboxId) -> Self {
        Self { control, access, id }
    }

    /// Runs a command to its end, telling line by line what it prints.
    pub(crate) async fn run(
        &self,
        command: &Command,
        heard: &mut (dyn FnMut(Stream, &str) + Send),
    ) -> Result<Outcome, AgentError> {
        let body = json!({
            "argv": command.argv,
            "cwd": command.cwd,
            "envs": command.env,
            "uid": command.uid,
            "gid": command.gid,
            "timeout": u64::try_from(command.time_max.as_millis()).unwrap_or(u64::MAX).max(1),
        });
        let body =
            Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
        let request = Request::post("/command").header(header::CONTENT_TYPE, "application/json");
        let patience = command.time_max + GRACE;
        let running = async {
            let response = self.send(request.body(body)).await?;
            let mut events = Events::default();
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame?.into_data() else { continue };
                if let Some(outcome) = events.push(&data, heard)? {
                    return Ok(outcome);
                }
            }
            Err(AgentError::Strange("it ended before the command did".to_owned()))
        };
        tokio::time::timeout(patience, running).await.map_err(|_| AgentError::Slow(patience))?
    }

    /// Puts a file of ours into the sandbox, for root's eyes only.
    pub(crate) async fn upload(&self, file: &Path, target: &str) -> Result<(), AgentError> {
        let (kind, length, body) = upload::body(file, target).await?;
        // As root, whoever the sandbox's own user is.
        let request = Request::post("/v1/filesystem/0/0/files/upload")
            .header(header::CONTENT_TYPE, kind)
            .header(header::CONTENT_LENGTH, length)
            .body(body);
        let sending = self.send(request);
        let sent = tokio::time::timeout(UPLOAD_TIME_MAX, sending).await;
        sent.map_err(|_| AgentError::Slow(UPLOAD_TIME_MAX))?.map(drop)
    }

    async fn send(
        &self,
        request: Result<Request<Body>, http::Error>,
    ) -> Result<Response<Incoming>, AgentError> {
        let mut request = request.map_err(|error| AgentError::Strange(error.to_string()))?;
        request.headers_mut().insert(header::HOST, http::HeaderValue::from_static("localhost"));
        let connecting = self.control.connect(&self.access, &self.id, Port::Agent);
        let io = tokio::time::timeout(CONNECT_TIME_MAX, connecting).await;
        let io =
            io.map_err(|_| AgentError::Slow(CONNECT_TIME_MAX))?.map_err(AgentError::Connect)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
        // Its error also reaches whoever waits for the answer, so nothing is lost here.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let response = sender.send_request(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let said = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect().await;
        let said = said.map(|body| body.to_bytes()).unwrap_or_default();
        Err(AgentError::Refused { status, said: message(&said) })
    }
}

/// The words of a refusal.
fn message(said: &[u8]) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(said).ok();
    let words = parsed.as_ref().and_then(|value| value["message"].as_str());
    words.map_or_else(|| String::from_utf8_lossy(said).into_owned(), str::to_owned)
}
