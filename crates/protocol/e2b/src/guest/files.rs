//! `/files`: content of files over plain HTTP.

mod compose;
mod download;
mod encoding;
mod media_type;
mod metadata;
mod range;
mod receive;
mod upload;

pub(super) use metadata::PREFIX;

use super::{caller::Caller, rest::Refusal};
use atoll_guest::{Guest, files::Attributes};
use axum::{
    Router,
    extract::{DefaultBodyLimit, FromRequestParts, Query},
    http::request::Parts,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use std::{path::Path, sync::Arc};

/// The routes of file content. Uploads are as large as the disk allows.
pub(super) fn router() -> Router<Arc<Guest>> {
    Router::new()
        .route("/files", get(download::download).post(upload::upload))
        .route("/files/compose", post(compose::compose))
        .layer(DefaultBodyLimit::disable())
}

/// The parameters of `/files`; signatures have been checked by the server.
#[derive(Debug, Default, Deserialize)]
struct Parameters {
    path: Option<String>,
    username: Option<String>,
}

/// A caller with the path that the query names, if it names one.
struct Target {
    caller: Caller,
    path: Option<String>,
}

impl FromRequestParts<Arc<Guest>> for Target {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, guest: &Arc<Guest>) -> Result<Self, Refusal> {
        let Query(Parameters { path, username }) = Query::try_from_uri(&parts.uri)
            .map_err(|error| Refusal::invalid(format!("the query cannot be read: {error}")))?;
        let guest = Arc::clone(guest);
        let caller = Caller::of_request(guest, &parts.headers, username.as_deref()).await?;
        Ok(Self { caller, path })
    }
}

/// What is told about a file that has been written.
#[derive(Debug, Serialize)]
struct Written {
    path: String,
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Attributes::is_empty")]
    metadata: Attributes,
}

impl Written {
    fn new(path: &Path, metadata: Attributes) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { path: path.to_string_lossy().into_owned(), name, kind: "file", metadata }
    }
}
