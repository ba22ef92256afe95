//! The code API: contexts, runs of code as streams of events, and interrupts.

mod events;
mod stand_in;
mod wire;

pub use stand_in::stand_in_for_jupyter;

use super::{
    commands,
    error::Failure,
    extract::{Body, Parameters},
};
use atoll_guest::{
    Error, Guest,
    command::{Line, Request},
    kernel::{Execution, normalise},
};
use axum::{
    Json, Router,
    extract::{Path, State},
    response::Response,
    routing::{get, post},
};
use std::sync::Arc;
use wire::{Context, NewContext, Run};

/// The language of code that is a command line.
const COMMAND: &str = "command";

pub(super) fn router() -> Router<Arc<Guest>> {
    Router::new()
        .route("/code", post(run).delete(interrupt))
        .route("/code/context", post(create))
        .route("/code/contexts", get(list).delete(remove_all))
        .route("/code/contexts/{id}", get(show).delete(remove))
}

async fn create(
    State(guest): State<Arc<Guest>>,
    Body(wanted): Body<NewContext>,
) -> Result<Json<Context>, Failure> {
    let language = wanted.language.filter(|language| !language.trim().is_empty());
    let language = language.ok_or_else(|| {
        Failure::invalid("language: is missing or empty; name one such as \"python\"")
    })?;
    let info = guest.kernels().open(&language, wanted.cwd.as_deref()).await?;
    Ok(Json(info.into()))
}

async fn list(State(guest): State<Arc<Guest>>, parameters: Parameters) -> Json<Vec<Context>> {
    let language = parameters.first("language").filter(|text| !text.is_empty()).map(normalise);
    let contexts = guest.kernels().list().into_iter();
    let chosen =
        contexts.filter(|info| language.as_ref().is_none_or(|language| info.language == *language));
    Json(chosen.map(Context::from).collect())
}

async fn show(
    State(guest): State<Arc<Guest>>,
    Path(id): Path<String>,
) -> Result<Json<Context>, Failure> {
    Ok(Json(guest.kernels().find(&id)?.into()))
}

async fn remove(State(guest): State<Arc<Guest>>, Path(id): Path<String>) -> Result<(), Failure> {
    Ok(guest.kernels().close(&id).await?)
}

async fn remove_all(
    State(guest): State<Arc<Guest>>,
    parameters: Parameters,
) -> Result<(), Failure> {
    let language = normalise(parameters.required("language")?);
    for info in guest.kernels().list().into_iter().filter(|info| info.language == language) {
        match guest.kernels().close(&info.id).await {
            // Somebody else was faster.
            Ok(()) | Err(Error::Unknown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn run(
    State(guest): State<Arc<Guest>>,
    Body(wanted): Body<Run>,
) -> Result<Response, Failure> {
    let code = wanted.code.filter(|code| !code.is_empty());
    let code = code.ok_or_else(|| Failure::invalid("code: is missing or empty; send some"))?;
    let context = wanted.context.unwrap_or_default();
    let language = context.language.filter(|language| !language.trim().is_empty());
    let id = match (context.id.filter(|id| !id.is_empty()), language) {
        (Some(id), _) => guest.kernels().find(&id)?.id,
        (None, Some(language)) if language != COMMAND => {
            guest.kernels().default_for(&language, None)?.id
        }
        (None, _) => return run_command(&guest, code).await,
    };
    guest.kernels().start(&id).await?;
    let execution = Execution { code, ..Execution::default() };
    let happened = guest.kernels().execute(&id, execution).await?;
    Ok(events::follow(&id, happened))
}

async fn run_command(guest: &Guest, text: String) -> Result<Response, Failure> {
    let line = Line::Shell(text);
    let request = Request { line, cwd: None, env: Default::default(), timeout: None, user: None };
    let running = guest.commands().run(request).await?;
    Ok(super::events::follow(&running.id, running.output))
}

/// Interrupts the code at work in a context, or a command that was run as code.
async fn interrupt(State(guest): State<Arc<Guest>>, parameters: Parameters) -> Result<(), Failure> {
    match guest.kernels().interrupt(parameters.required("id")?).await {
        Err(Error::Unknown { .. }) => commands::interrupt(State(guest), parameters).await,
        other => Ok(other?),
    }
}
