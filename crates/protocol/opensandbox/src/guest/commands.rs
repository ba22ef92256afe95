use super::{
    error::{Code, Failure},
    events,
    extract::{Body, Parameters},
    wire::{CommandRequest, CommandStatus, rfc3339},
};
use atoll_guest::{
    Error, Guest,
    command::{Line, Request},
};
use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use std::{sync::Arc, time::Duration};

const CURSOR_HEADER: HeaderName = HeaderName::from_static("execd-commands-tail-cursor");

pub(super) async fn run(
    State(guest): State<Arc<Guest>>,
    Body(wire): Body<CommandRequest>,
) -> Result<Response, Failure> {
    let background = wire.background.unwrap_or(false);
    let request = Request::try_from(wire)?;
    if background {
        let id = guest.commands().run_background(request).await?;
        return Ok(events::started(&id));
    }
    let running = guest.commands().run(request).await?;
    Ok(events::follow(&running.id, running.output))
}

impl TryFrom<CommandRequest> for Request {
    type Error = Failure;

    fn try_from(wire: CommandRequest) -> Result<Self, Failure> {
        let line = match (wire.command.filter(|text| !text.is_empty()), wire.argv) {
            (Some(text), None) => Line::Shell(text),
            (None, Some(words)) if !words.is_empty() => Line::Argv(words),
            (Some(_), Some(_)) => {
                return Err(Failure::invalid(
                    "command and argv exclude each other; send one of them",
                ));
            }
            _ => {
                return Err(Failure::invalid("command: is missing or empty; send command or argv"));
            }
        };
        if wire.timeout == Some(0) {
            return Err(Failure::invalid(
                "timeout: 0 is too short; send milliseconds from 1, or nothing",
            ));
        }
        if [wire.uid, wire.gid].contains(&Some(u32::MAX)) {
            return Err(Failure::invalid("uid and gid: must be from 0 to 4294967294"));
        }
        let user = match (wire.uid, wire.gid) {
            (Some(uid), gid) => Some((uid, gid)),
            (None, None) => None,
            (None, Some(_)) => {
                return Err(Failure::invalid("gid: needs uid; send both or neither"));
            }
        };
        let timeout = wire.timeout.map(Duration::from_millis);
        Ok(Self { line, cwd: wire.cwd, env: wire.envs.unwrap_or_default(), timeout, user })
    }
}

/// Interrupts a command, or the run at work in a session, whose events carry the session's id.
pub(super) async fn interrupt(
    State(guest): State<Arc<Guest>>,
    parameters: Parameters,
) -> Result<(), Failure> {
    let id = parameters.required("id")?;
    let interrupted = match guest.commands().interrupt(id) {
        Err(Error::Unknown { .. }) => guest.sessions().interrupt(id).await,
        other => other,
    };
    interrupted.map_err(|error| {
        let Failure { message, .. } = Failure::from(error);
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, Code::RuntimeError, message)
    })
}

pub(super) async fn status(
    State(guest): State<Arc<Guest>>,
    Path(id): Path<String>,
) -> Result<Json<CommandStatus>, Failure> {
    let status = guest.commands().status(&id)?;
    let (outcome, finished_at) = status.ended.unzip();
    Ok(Json(CommandStatus {
        id: status.id,
        content: status.text,
        running: outcome.is_none(),
        exit_code: outcome.as_ref().map(|outcome| outcome.code),
        error: outcome.and_then(|outcome| outcome.problem),
        started_at: rfc3339(status.started_at),
        finished_at: finished_at.map(rfc3339),
    }))
}

pub(super) async fn logs(
    State(guest): State<Arc<Guest>>,
    Path(id): Path<String>,
    parameters: Parameters,
) -> Result<Response, Failure> {
    let cursor = parameters.number("cursor")?.unwrap_or(0);
    let read = guest.commands().log(&id, cursor).await;
    let (bytes, next) = read.map_err(|error| match error {
        Error::Unknown { .. } => Failure::from(error).with_status(StatusCode::BAD_REQUEST),
        other => other.into(),
    })?;
    let headers = [
        (CURSOR_HEADER, next.to_string()),
        (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
    ];
    Ok((headers, bytes).into_response())
}
