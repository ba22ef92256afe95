use super::{
    error::Failure,
    extract::{Body, Caller, Parameters},
    wire::{FileInfo, Move, Permissions, Replaced, Replacement},
};
use atoll_guest::{
    Guest,
    accounts::Accounts,
    files::{self, Pattern},
};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use std::{collections::BTreeMap, sync::Arc};

pub(super) async fn info(
    State(guest): State<Arc<Guest>>,
    Caller(identity): Caller,
    parameters: Parameters,
) -> Result<Json<BTreeMap<String, FileInfo>>, Failure> {
    let paths = parameters.all("path")?;
    let job = Arc::clone(&guest);
    let look = move || {
        let accounts = Accounts::load();
        let one = |path: String| {
            let info = files::info(&job.expand(&path), &accounts)?;
            Ok((path, FileInfo::from(info)))
        };
        paths.into_iter().map(one).collect()
    };
    Ok(Json(guest.file_operation(identity, look).await?))
}

pub(super) async fn remove(
    State(guest): State<Arc<Guest>>,
    Caller(identity): Caller,
    parameters: Parameters,
) -> Result<(), Failure> {
    let paths = parameters.all("path")?;
    let job = Arc::clone(&guest);
    let remove = move || paths.iter().try_for_each(|path| files::remove_file(&job.expand(path)));
    Ok(guest.file_operation(identity, remove).await?)
}

pub(super) async fn rename(
    State(guest): State<Arc<Guest>>,
    Caller(identity): Caller,
    Body(moves): Body<Vec<Move>>,
) -> Result<(), Failure> {
    let job = Arc::clone(&guest);
    let rename = move || {
        let one = |pair: &Move| files::rename(&job.expand(&pair.src), &job.expand(&pair.dest));
        moves.iter().try_for_each(one)
    };
    Ok(guest.file_operation(identity, rename).await?)
}

pub(super) async fn permissions(
    State(guest): State<Arc<Guest>>,
    Caller(identity): Caller,
    Body(changes): Body<BTreeMap<String, Permissions>>,
) -> Result<(), Failure> {
    let job = Arc::clone(&guest);
    let change = move || {
        changes.into_iter().try_for_each(|(path, wire)| {
            files::set_permissions(&job.expand(&path), &wire.try_into()?)
        })
    };
    Ok(guest.file_operation(identity, change).await?)
}

pub(super) async fn search(
    State(guest): State<Arc<Guest>>,
    Caller(identity): Caller,
    parameters: Parameters,
) -> Result<Json<Vec<FileInfo>>, Failure> {
    let path = parameters.required("path")?.to_owned();
    let pattern = Pattern::parse(parameters.first("pattern").unwrap_or("**"))?;
    let job = Arc::clone(&guest);
    let search = move || files::search(&job.expand(&path), &pattern);
    let found = guest.file_operation(identity, search).await?;
    Ok(Json(found.into_iter().map(FileInfo::from).collect()))
}

pub(super) async fn replace(
    State(guest): State<Arc<Guest>>,
    Caller(identity): Caller,
    parameters: Parameters,
    Body(edits): Body<BTreeMap<String, Replacement>>,
) -> Result<Response, Failure> {
    let verbose = matches!(parameters.first("verbose"), Some("true" | "1"));
    let job = Arc::clone(&guest);
    let replace = move || {
        let one = |(path, edit): (String, Replacement)| {
            let replaced_count = files::replace(&job.expand(&path), &edit.old, &edit.new)?;
            Ok((path, Replaced { replaced_count }))
        };
        edits.into_iter().map(one).collect::<atoll_guest::Result<BTreeMap<_, _>>>()
    };
    let counts = guest.file_operation(identity, replace).await?;
    Ok(if verbose { Json(counts).into_response() } else { ().into_response() })
}
