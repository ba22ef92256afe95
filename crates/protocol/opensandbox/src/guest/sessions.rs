use super::{
    error::Failure,
    events,
    extract::Body,
    wire::{SessionOpened, SessionRequest, SessionRun},
};
use atoll_guest::Guest;
use axum::{
    Json,
    extract::{Path, State},
    response::Response,
};
use std::{sync::Arc, time::Duration};

pub(super) async fn open(
    State(guest): State<Arc<Guest>>,
    Body(request): Body<SessionRequest>,
) -> Result<Json<SessionOpened>, Failure> {
    let session_id = guest.sessions().open(request.cwd.as_deref()).await?;
    Ok(Json(SessionOpened { session_id }))
}

pub(super) async fn run(
    State(guest): State<Arc<Guest>>,
    Path(id): Path<String>,
    Body(request): Body<SessionRun>,
) -> Result<Response, Failure> {
    let text = request.command.filter(|text| !text.is_empty());
    let text =
        text.ok_or_else(|| Failure::invalid("command: is missing or empty; send shell text"))?;
    let timeout = request.timeout.filter(|ms| *ms > 0).map(Duration::from_millis);
    let output = guest.sessions().run(&id, text, request.cwd.as_deref(), timeout).await?;
    Ok(events::follow(&id, output))
}

pub(super) async fn close(
    State(guest): State<Arc<Guest>>,
    Path(id): Path<String>,
) -> Result<(), Failure> {
    Ok(guest.sessions().close(&id).await?)
}
