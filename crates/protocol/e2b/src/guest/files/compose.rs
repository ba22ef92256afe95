use super::{PREFIX, Written};
use crate::guest::{caller::Caller, rest::Refusal};
use atoll_guest::{
    Guest,
    files::{self, Attributes},
};
use axum::{
    Json,
    body::Bytes,
    extract::{Request, State},
};
use serde::Deserialize;
use std::{path::PathBuf, sync::Arc};

const BODY_BYTES_MAX: usize = 8 << 20;
/// Files that one request may join.
const SOURCES_MAX: usize = 10_000;

#[derive(Deserialize)]
struct Asked {
    source_paths: Vec<String>,
    destination: String,
    username: Option<String>,
}

/// Joins files into one and removes them.
pub(super) async fn compose(
    State(guest): State<Arc<Guest>>,
    request: Request,
) -> Result<Json<Written>, Refusal> {
    let headers = request.headers().clone();
    let body: Bytes = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX)
        .await
        .map_err(|_| Refusal::invalid(format!("the body exceeds {BODY_BYTES_MAX} bytes")))?;
    let Asked { source_paths, destination, username } = serde_json::from_slice(&body)
        .map_err(|error| Refusal::invalid(format!("the body is not valid: {error}")))?;
    if source_paths.is_empty() || source_paths.len() > SOURCES_MAX {
        let problem = format!("source_paths must name 1 to {SOURCES_MAX} files");
        return Err(Refusal::invalid(problem));
    }
    if destination.is_empty() || source_paths.iter().any(String::is_empty) {
        return Err(Refusal::invalid("destination and source_paths must not be empty texts"));
    }
    let caller = Caller::of_request(Arc::clone(&guest), &headers, username.as_deref()).await?;
    let sources = source_paths.iter().map(|path| caller.path(path));
    let sources = sources.collect::<Result<Vec<PathBuf>, _>>()?;
    let destination = caller.path(&destination)?;
    let (at, owner) = (destination.clone(), caller.login.identity.clone());
    guest.file_operation(None, move || files::join(&sources, &at, &owner, PREFIX)).await?;
    Ok(Json(Written::new(&destination, Attributes::new())))
}
