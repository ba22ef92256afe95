//! Uploads: pairs of metadata and file parts, streamed to temporary files. All files of a request
//! appear when the whole request has been understood, or none does.

use super::{
    error::{Code, Failure},
    extract::Caller,
    wire::UploadMetadata,
};
use atoll_guest::{
    Error, Guest, Identity,
    files::{Permissions, Staged, Upload},
};
use axum::{
    body::BodyDataStream,
    extract::{Request, State},
    http::{StatusCode, header},
};
use futures_util::StreamExt;
use multer::{Constraints, Field, Multipart, SizeLimit};
use std::{collections::VecDeque, path::PathBuf, sync::Arc};

const METADATA_BYTES_MAX: u64 = 64 * 1024;
/// Pairs that one request may hold.
const PAIRS_MAX: usize = 65_536;
const CHUNK_BYTES: usize = 256 * 1024;
/// What is read of a refused request, so that its sender gets to read the refusal.
const REFUSED_BYTES_READ: usize = 1 << 20;

fn refused(code: Code, message: impl Into<String>) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, code, message)
}

fn broken(error: multer::Error) -> Failure {
    refused(Code::InvalidFileContent, format!("the upload broke off or is malformed: {error}"))
}

pub(super) async fn upload(
    State(guest): State<Arc<Guest>>,
    Caller(identity): Caller,
    request: Request,
) -> Result<(), Failure> {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let boundary = multer::parse_boundary(content_type.unwrap_or_default());
    let mut body = request.into_body().into_data_stream();
    let mut incoming = Incoming { guest, identity, staged: Vec::new(), open: None };
    // A task of its own: a sender that goes away must not keep it from tidying up.
    let task = tokio::spawn(async move {
        let received = match boundary {
            Ok(boundary) => incoming.receive(&mut body, boundary).await,
            Err(_) => Err(refused(
                Code::InvalidFile,
                "the body must be multipart/form-data with a boundary",
            )),
        };
        let done = match received {
            Ok(()) => incoming.commit().await,
            Err(refusal) => {
                incoming.abandon().await;
                Err(refusal)
            }
        };
        read_to_end(body).await;
        done
    });
    task.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
}

/// Reads what lies behind the last part: a connection with unread bytes cannot be used again.
async fn read_to_end(mut body: BodyDataStream) {
    let mut read = 0;
    while read < REFUSED_BYTES_READ {
        match body.next().await {
            Some(Ok(bytes)) => read += bytes.len(),
            Some(Err(_)) | None => return,
        }
    }
}

/// The files of one request, received but not yet in their places.
struct Incoming {
    guest: Arc<Guest>,
    identity: Option<Identity>,
    staged: Vec<Staged>,
    open: Option<Upload>,
}

impl Incoming {
    async fn receive(
        &mut self,
        body: &mut BodyDataStream,
        boundary: String,
    ) -> Result<(), Failure> {
        let sizes =
            SizeLimit::new().whole_stream(u64::MAX).for_field("metadata", METADATA_BYTES_MAX);
        let constraints = Constraints::new().size_limit(sizes);
        let mut parts = Multipart::with_constraints(body, boundary, constraints);
        let mut waiting = VecDeque::new();
        while let Some(part) = parts.next_field().await.map_err(broken)? {
            match part.name() {
                Some("metadata") if self.staged.len() + waiting.len() < PAIRS_MAX => {
                    waiting.push_back(read_metadata(part).await?);
                }
                Some("metadata") => {
                    let message = format!("more than {PAIRS_MAX} files; send several requests");
                    return Err(refused(Code::InvalidFile, message));
                }
                Some("file") => {
                    let (path, permissions) = waiting.pop_front().ok_or_else(|| {
                        refused(
                            Code::InvalidFile,
                            "a file part has no metadata part before it; send pairs",
                        )
                    })?;
                    let target = self.guest.expand(&path);
                    self.stage(part, target, permissions).await?;
                }
                other => {
                    let message =
                        format!("unexpected part {other:?}; send parts named metadata and file");
                    return Err(refused(Code::InvalidFile, message));
                }
            }
        }
        match (self.staged.len(), waiting.len()) {
            (0, 0) => {
                Err(refused(Code::InvalidFile, "no file was sent; send metadata and file parts"))
            }
            (_, 0) => Ok(()),
            (_, left) => {
                Err(refused(Code::InvalidFile, format!("{left} metadata parts have no file part")))
            }
        }
    }

    /// Receives one part: a small one in a single step, a large one chunk by chunk.
    async fn stage(
        &mut self,
        mut part: Field<'_>,
        target: PathBuf,
        permissions: Permissions,
    ) -> Result<(), Failure> {
        loop {
            let mut chunk = Vec::new();
            let mut last = false;
            while chunk.len() < CHUNK_BYTES && !last {
                match part.chunk().await.map_err(broken)? {
                    Some(bytes) => chunk.extend_from_slice(&bytes),
                    None => last = true,
                }
            }
            let (path, permissions, running) =
                (target.clone(), permissions.clone(), self.open.take());
            let step = move || {
                let mut upload = match running {
                    Some(upload) => upload,
                    None => Upload::begin(&path)?,
                };
                upload.write(&chunk)?;
                Ok(if last { Ok(upload.finish(&permissions)?) } else { Err(upload) })
            };
            match self.guest.file_operation(self.identity.clone(), step).await? {
                Ok(staged) => {
                    self.staged.push(staged);
                    return Ok(());
                }
                Err(unfinished) => self.open = Some(unfinished),
            }
        }
    }

    async fn commit(self) -> Result<(), Failure> {
        let staged = self.staged;
        let commit = move || staged.into_iter().try_for_each(Staged::commit);
        Ok(self.guest.file_operation(self.identity, commit).await?)
    }

    /// Removes what has been received, with the rights with which it was made.
    async fn abandon(self) {
        let received = (self.staged, self.open);
        let remove = move || {
            drop(received);
            Ok(())
        };
        // What cannot be removed as that user was not made by it.
        self.guest.file_operation(self.identity, remove).await.ok();
    }
}

async fn read_metadata(part: Field<'_>) -> Result<(String, Permissions), Failure> {
    let text = part.bytes().await.map_err(|error| {
        refused(Code::InvalidFileMetadata, format!("the metadata cannot be read: {error}"))
    })?;
    let metadata: UploadMetadata = serde_json::from_slice(&text).map_err(|error| {
        refused(Code::InvalidFileMetadata, format!("the metadata is not valid JSON: {error}"))
    })?;
    if metadata.path.is_empty() {
        return Err(refused(Code::InvalidFileMetadata, "path: is empty; name the file to write"));
    }
    let permissions = metadata.permissions.try_into();
    let permissions = permissions
        .map_err(|error: Error| refused(Code::InvalidFileMetadata, error.to_string()))?;
    Ok((metadata.path, permissions))
}
