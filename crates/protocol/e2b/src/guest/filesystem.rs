//! `filesystem.Filesystem`: looking at, making, moving, removing and watching.

mod watch;
mod wire;

use super::{
    caller::Caller,
    connect::{self, Code, Failure, MESSAGE_BYTES_MAX},
    files::PREFIX,
};
use atoll_guest::{Error, Guest, files};
use axum::{
    Router,
    extract::{Request, State},
    response::Response,
    routing::post,
};
use std::{path::PathBuf, sync::Arc};
use wire::{Empty, Entries, EntryAnswer, ListDirRequest, MoveRequest, PathRequest};

type Shared = State<Arc<Guest>>;

/// The routes of the service.
pub(super) fn router() -> Router<Arc<Guest>> {
    Router::new()
        .route("/filesystem.Filesystem/Stat", post(stat))
        .route("/filesystem.Filesystem/MakeDir", post(make_dir))
        .route("/filesystem.Filesystem/Move", post(rename))
        .route("/filesystem.Filesystem/ListDir", post(list_dir))
        .route("/filesystem.Filesystem/Remove", post(remove))
        .route("/filesystem.Filesystem/WatchDir", post(watch::stream))
        .route("/filesystem.Filesystem/CreateWatcher", post(watch::create))
        .route("/filesystem.Filesystem/GetWatcherEvents", post(watch::events))
        .route("/filesystem.Filesystem/RemoveWatcher", post(watch::remove))
}

async fn stat(State(guest): Shared, request: Request) -> Response {
    let look = async |caller: Caller, asked: PathRequest| {
        let path = caller.path(&asked.path.unwrap_or_default())?;
        let look = move || files::entry(&path, PREFIX);
        Ok(EntryAnswer::new(&caller.guest.file_operation(None, look).await?))
    };
    connect::unary(guest, request, MESSAGE_BYTES_MAX, look).await
}

async fn make_dir(State(guest): Shared, request: Request) -> Response {
    let make = async |caller: Caller, asked: PathRequest| {
        let path = caller.path(&asked.path.unwrap_or_default())?;
        let owner = caller.login.identity.clone();
        let make = move || {
            let is_new = files::make_directory_for(&path, &owner)?;
            Ok((is_new, files::entry(&path, PREFIX)?))
        };
        match caller.guest.file_operation(None, make).await? {
            (true, entry) => Ok(EntryAnswer::new(&entry)),
            (false, entry) => {
                let problem = format!("directory already exists: {}", entry.path.display());
                Err(Failure::new(Code::AlreadyExists, problem))
            }
        }
    };
    connect::unary(guest, request, MESSAGE_BYTES_MAX, make).await
}

async fn rename(State(guest): Shared, request: Request) -> Response {
    let rename = async |caller: Caller, asked: MoveRequest| {
        let source = named(&caller, "source", asked.source)?;
        let destination = named(&caller, "destination", asked.destination)?;
        let owner = caller.login.identity.clone();
        let rename = move || {
            files::move_over(&source, &destination, &owner)?;
            files::entry(&destination, PREFIX)
        };
        Ok(EntryAnswer::new(&caller.guest.file_operation(None, rename).await?))
    };
    connect::unary(guest, request, MESSAGE_BYTES_MAX, rename).await
}

/// A path that must be given: the workdir is never meant by saying nothing where something is
/// moved or removed.
fn named(caller: &Caller, field: &'static str, path: Option<String>) -> Result<PathBuf, Failure> {
    let path = path
        .filter(|path| !path.is_empty())
        .ok_or_else(|| Error::Invalid { field, problem: "is empty; name a path".to_owned() })?;
    Ok(caller.path(&path)?)
}

async fn list_dir(State(guest): Shared, request: Request) -> Response {
    let list = async |caller: Caller, asked: ListDirRequest| {
        let path = caller.path(&asked.path.unwrap_or_default())?;
        let depth = asked.depth.map_or(1, |depth| depth.0.max(1)) as usize;
        let list = move || files::entries(&path, depth, PREFIX);
        Ok(Entries::new(&caller.guest.file_operation(None, list).await?))
    };
    connect::unary(guest, request, MESSAGE_BYTES_MAX, list).await
}

async fn remove(State(guest): Shared, request: Request) -> Response {
    let remove = async |caller: Caller, asked: PathRequest| {
        let path = named(&caller, "path", asked.path)?;
        caller.guest.file_operation(None, move || files::remove_directory(&path)).await?;
        Ok(Empty {})
    };
    connect::unary(guest, request, MESSAGE_BYTES_MAX, remove).await
}
