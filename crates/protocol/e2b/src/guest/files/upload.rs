//! Uploads: one body, or the parts of a form.

use super::{
    Target, Written, metadata,
    receive::{Packing, Receiver, Unpacker, drain},
};
use crate::guest::{caller::Caller, rest::Refusal};
use atoll_guest::files::Attributes;
use axum::{
    Json,
    body::BodyDataStream,
    extract::Request,
    http::{HeaderMap, header},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use multer::Multipart;
use std::{collections::HashSet, path::PathBuf};

/// Files that one request may hold.
const FILES_MAX: usize = 65_536;
/// The form's field that holds a file.
const FIELD: &str = "file";

pub(super) async fn upload(
    target: Target,
    headers: HeaderMap,
    request: Request,
) -> Result<Json<Vec<Written>>, Refusal> {
    let mut body = request.into_body().into_data_stream();
    // A task of its own: a sender that goes away must not keep it from tidying up.
    let task = tokio::spawn(async move {
        let received = receive(&target, &headers, &mut body).await;
        if received.is_err() {
            drain(&mut body).await;
        }
        received
    });
    let received = task.await;
    received.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic())).map(Json)
}

async fn receive(
    target: &Target,
    headers: &HeaderMap,
    body: &mut BodyDataStream,
) -> Result<Vec<Written>, Refusal> {
    let metadata = metadata::read(headers)?;
    let packing = Packing::of(headers)?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let path = target.path.as_deref().filter(|path| !path.is_empty());
    match (essence.as_str(), path) {
        ("application/octet-stream", None) => {
            Err(Refusal::invalid("an upload as application/octet-stream needs the parameter path"))
        }
        ("application/octet-stream", Some(path)) => {
            let path = target.caller.path(path)?;
            let written = Written::new(&path, metadata.clone());
            let content = unpacked(body, packing);
            store(&target.caller, path, metadata, content).await?;
            Ok(vec![written])
        }
        ("multipart/form-data", path) => {
            let boundary = multer::parse_boundary(content_type).map_err(broken)?;
            let form = Multipart::new(unpacked(body, packing).map(boxed), boundary);
            receive_parts(&target.caller, form, path, metadata).await
        }
        _ => Err(Refusal::invalid(format!(
            "the content type {content_type:?} is not served here; send multipart/form-data or \
             application/octet-stream"
        ))),
    }
}

/// A refusal on its way through the form's reader.
fn boxed(piece: Result<Bytes, Refusal>) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    piece.map_err(|refusal| refusal.message.into())
}

fn broken(error: multer::Error) -> Refusal {
    Refusal::invalid(format!("the upload broke off or is malformed: {error}"))
}

/// The body as it was before packing.
fn unpacked(
    body: &mut BodyDataStream,
    packing: Packing,
) -> impl Stream<Item = Result<Bytes, Refusal>> + Send + Unpin + '_ {
    let state = (body, Some(Unpacker::new(packing)), Vec::new());
    Box::pin(stream::try_unfold(state, |(body, mut unpacker, mut slices)| async move {
        loop {
            let Some(current) = &mut unpacker else { return Ok(None) };
            if let Some(slice) = slices.pop() {
                let bytes = current.unpack(slice)?;
                return Ok(Some((bytes, (body, unpacker, slices))));
            }
            match body.next().await {
                Some(Ok(packed)) => {
                    slices = current.slices(&packed);
                    slices.reverse();
                }
                Some(Err(error)) => {
                    return Err(Refusal::invalid(format!("the upload broke off: {error}")));
                }
                None => {
                    let rest = unpacker.take().map_or(Ok(Bytes::new()), Unpacker::finish)?;
                    return Ok(Some((rest, (body, None, slices))));
                }
            }
        }
    }))
}

async fn store(
    caller: &Caller,
    path: PathBuf,
    metadata: Attributes,
    mut content: impl Stream<Item = Result<Bytes, Refusal>> + Unpin,
) -> Result<(), Refusal> {
    let owner = caller.login.identity.clone();
    let mut receiver = Receiver::open(&caller.guest, path, owner, metadata).await?;
    while let Some(piece) = content.next().await {
        receiver.write(piece?).await?;
    }
    receiver.finish().await
}

/// Stores every file of a form. The parameter `path` names the only one.
async fn receive_parts(
    caller: &Caller,
    mut form: Multipart<'_>,
    path: Option<&str>,
    metadata: Attributes,
) -> Result<Vec<Written>, Refusal> {
    let (mut written, mut seen) = (Vec::new(), HashSet::new());
    while let Some(part) = form.next_field().await.map_err(broken)? {
        if part.name() != Some(FIELD) {
            continue;
        }
        let named = path.or(part.file_name()).filter(|name| !name.is_empty());
        let named = named.ok_or_else(|| {
            Refusal::invalid("a part has no filename; name the file there or as parameter path")
        })?;
        let at = caller.path(named)?;
        if !seen.insert(at.clone()) {
            let at = at.display();
            return Err(Refusal::invalid(format!("{at} is uploaded twice; send it once")));
        }
        if seen.len() > FILES_MAX {
            return Err(Refusal::invalid(format!("one request may hold {FILES_MAX} files")));
        }
        let content = part.map(|piece| piece.map_err(broken));
        store(caller, at.clone(), metadata.clone(), content).await?;
        written.push(Written::new(&at, metadata.clone()));
    }
    Ok(written)
}
