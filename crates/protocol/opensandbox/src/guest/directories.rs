use super::{
    error::Failure,
    extract::{Body, Caller, Parameters},
    wire::{FileInfo, Permissions},
};
use atoll_guest::{Error, Guest, files};
use axum::{Json, extract::State, http::StatusCode};
use std::{collections::BTreeMap, sync::Arc};

pub(super) async fn list(
    State(guest): State<Arc<Guest>>,
    Caller(identity): Caller,
    parameters: Parameters,
) -> Result<Json<Vec<FileInfo>>, Failure> {
    let path = parameters.required("path")?.to_owned();
    let depth = parameters.number("depth")?.unwrap_or(1);
    let job = Arc::clone(&guest);
    let list =
        move || files::list(&job.expand(&path), usize::try_from(depth).unwrap_or(usize::MAX));
    let entries = guest.file_operation(identity, list).await.map_err(|error| match error {
        Error::Unsuitable { .. } => Failure::from(error).with_status(StatusCode::BAD_REQUEST),
        other => other.into(),
    })?;
    Ok(Json(entries.into_iter().map(FileInfo::from).collect()))
}

pub(super) async fn make(
    State(guest): State<Arc<Guest>>,
    Caller(identity): Caller,
    Body(wanted): Body<BTreeMap<String, Option<Permissions>>>,
) -> Result<(), Failure> {
    let job = Arc::clone(&guest);
    let make = move || {
        wanted.into_iter().try_for_each(|(path, wire)| {
            files::make_directory(&job.expand(&path), &wire.unwrap_or_default().try_into()?)
        })
    };
    Ok(guest.file_operation(identity, make).await?)
}

pub(super) async fn remove(
    State(guest): State<Arc<Guest>>,
    Caller(identity): Caller,
    parameters: Parameters,
) -> Result<(), Failure> {
    let paths = parameters.all("path")?;
    let job = Arc::clone(&guest);
    let remove =
        move || paths.iter().try_for_each(|path| files::remove_directory(&job.expand(path)));
    Ok(guest.file_operation(identity, remove).await?)
}
