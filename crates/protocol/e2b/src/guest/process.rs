//! `process.Process`: starting, following, feeding and signalling processes.

mod follow;
mod wire;

use super::{
    caller::Caller,
    connect::{
        self, Code, Failure, INPUT_BYTES_MAX, MESSAGE_BYTES_MAX, Messages, end_frame,
        failed_stream, message_frame, stream_response,
    },
    json::Choice,
};
use atoll_guest::{
    Error, Guest,
    job::{Job, Request as JobRequest, Selector},
};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::post,
};
use follow::Follower;
use std::{path::PathBuf, sync::Arc};
use wire::{
    CloseStdinRequest, ConnectRequest, Empty, ListResponse, ProcessInput, Pty, SendInputRequest,
    SendSignalRequest, StartRequest, StreamInputRequest, UpdateRequest,
};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

type Shared = State<Arc<Guest>>;

/// The routes of the service.
pub(super) fn router() -> Router<Arc<Guest>> {
    Router::new()
        .route("/process.Process/List", post(list))
        .route("/process.Process/Start", post(start))
        .route("/process.Process/Connect", post(attach))
        .route("/process.Process/Update", post(update))
        .route("/process.Process/SendInput", post(send_input))
        .route("/process.Process/StreamInput", post(stream_input))
        .route("/process.Process/SendSignal", post(send_signal))
        .route("/process.Process/CloseStdin", post(close_stdin))
}

async fn list(State(guest): Shared, request: Request) -> Response {
    connect::unary(guest, request, MESSAGE_BYTES_MAX, async |caller: Caller, _: Empty| {
        Ok(ListResponse { processes: caller.guest.jobs().running() })
    })
    .await
}

async fn start(State(guest): Shared, request: Request) -> Response {
    connect::streaming(guest, request, begin).await
}

async fn begin(caller: Caller, asked: StartRequest) -> Result<Response, Failure> {
    let timeout = connect::timeout(&caller.headers)?;
    let config = asked.process.unwrap_or_default();
    let program = config.cmd.filter(|cmd| !cmd.is_empty());
    let program =
        program.ok_or_else(|| Failure::invalid("process.cmd is missing; name a program"))?;
    let terminal = asked.pty.map(Pty::size).transpose()?;
    let request = JobRequest {
        cwd: directory(&caller, config.cwd.as_deref()).await?,
        program,
        arguments: config.args.unwrap_or_default(),
        env: config.envs.unwrap_or_default(),
        cwd_asked: config.cwd,
        login: caller.login.clone(),
        terminal,
        takes_input: asked.stdin.unwrap_or(true),
        tag: asked.tag,
        timeout,
    };
    let started = caller.guest.jobs().start(request).await;
    let (job, output) = started.map_err(|error| match Failure::from(error) {
        // The program, not something that was asked for by this call.
        missing @ Failure { code: Code::NotFound, .. } => Failure::invalid(missing.message),
        other => other,
    })?;
    Ok(Follower::of_start(&job, output, connect::keepalive(&caller.headers), timeout).response())
}

/// Where a process starts. A place that nobody named may be missing; then it is the root.
async fn directory(caller: &Caller, asked: Option<&str>) -> Result<PathBuf, Failure> {
    let asked = asked.unwrap_or_default();
    let path = caller.path(asked)?;
    let (is_named, text) = (!asked.is_empty(), path.display().to_string());
    let look = move || match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => Ok(Ok(path)),
        _ if !is_named => Ok(Ok(PathBuf::from("/"))),
        Ok(_) => Ok(Err("is not a directory")),
        Err(_) => Ok(Err("does not exist")),
    };
    let found = caller.guest.file_operation(None, look).await?;
    found.map_err(|problem| Failure::invalid(format!("cwd '{text}' {problem}")))
}

async fn attach(State(guest): Shared, request: Request) -> Response {
    connect::streaming(guest, request, async |caller: Caller, asked: ConnectRequest| {
        let timeout = connect::timeout(&caller.headers)?;
        let job = caller.guest.jobs().find(&wire::selector(asked.process)?)?;
        let keepalive = connect::keepalive(&caller.headers);
        Ok(Follower::of_connect(&job, job.follow()?, keepalive, timeout).response())
    })
    .await
}

fn running(caller: &Caller, selector: Option<wire::ProcessSelector>) -> Result<Arc<Job>, Failure> {
    Ok(caller.guest.jobs().find_running(&wire::selector(selector)?)?)
}

async fn update(State(guest): Shared, request: Request) -> Response {
    connect::unary(
        guest,
        request,
        MESSAGE_BYTES_MAX,
        async |caller: Caller, asked: UpdateRequest| {
            let job = running(&caller, asked.process)?;
            if let Some(pty) = asked.pty {
                if job.request().terminal.is_none() {
                    let problem = format!("process {} has no terminal to resize", job.pid());
                    return Err(Failure::new(Code::Internal, problem));
                }
                let (cols, rows) = pty.size()?;
                job.resize(cols, rows)?;
            }
            Ok(Empty {})
        },
    )
    .await
}

async fn send_input(State(guest): Shared, request: Request) -> Response {
    connect::unary(
        guest,
        request,
        INPUT_BYTES_MAX,
        async |caller: Caller, asked: SendInputRequest| {
            write(&*running(&caller, asked.process)?, asked.input).await?;
            Ok(Empty {})
        },
    )
    .await
}

/// Writes to the input that the caller means, if the process has that one.
async fn write(job: &Job, input: Option<ProcessInput>) -> Result<(), Failure> {
    let input = input.unwrap_or_default();
    let has_terminal = job.request().terminal.is_some();
    let wrong = |problem: &str| {
        Err(Failure::new(Code::Internal, format!("process {} {problem}", job.pid())))
    };
    match (input.stdin, input.pty) {
        (Some(_), None) if has_terminal => wrong("has a terminal; send the input as pty"),
        (None, Some(_)) if !has_terminal => wrong("has no terminal; send the input as stdin"),
        (Some(bytes), None) | (None, Some(bytes)) => Ok(job.write(&bytes.0).await?),
        (None, None) => Err(Failure::invalid("input is missing; set stdin or pty")),
        (Some(_), Some(_)) => Err(Failure::invalid("input has both stdin and pty; set one")),
    }
}

async fn stream_input(State(guest): Shared, request: Request) -> Response {
    if let Err(refusal) = connect::check_stream(request.headers()) {
        return refusal.into_response();
    }
    let headers = request.headers().clone();
    let mut messages = Messages::new(request, INPUT_BYTES_MAX);
    let fed = async {
        let time = connect::timeout(&headers)?;
        let caller = Caller::identify(guest, &headers).await?;
        match time {
            Some(time) => tokio::time::timeout(time, feed(&caller, &mut messages))
                .await
                .unwrap_or_else(|_| Err(Failure::deadline(time))),
            None => feed(&caller, &mut messages).await,
        }
    };
    match fed.await {
        Ok(()) => {
            let mut body = message_frame(&Empty {});
            body.extend(end_frame(None));
            stream_response(Body::from(body))
        }
        Err(failure) => {
            messages.drain().await;
            failed_stream(&failure)
        }
    }
}

async fn feed(caller: &Caller, messages: &mut Messages) -> Result<(), Failure> {
    let mut job = None;
    while let Some(StreamInputRequest { start, data, keepalive }) = messages.next().await? {
        match (start, data, keepalive) {
            (Some(start), None, None) => job = Some(running(caller, start.process)?),
            (None, Some(data), None) => {
                let unnamed =
                    || Failure::invalid("data comes before start; name the process first");
                write(job.as_ref().ok_or_else(unnamed)?, data.input).await?;
            }
            (None, None, Some(_)) => {}
            _ => return Err(Failure::invalid("a message must have one of start, data, keepalive")),
        }
    }
    Ok(())
}

async fn send_signal(State(guest): Shared, request: Request) -> Response {
    connect::unary(
        guest,
        request,
        MESSAGE_BYTES_MAX,
        async |caller: Caller, asked: SendSignalRequest| {
            let signal = match asked.signal {
                Some(Choice::Number(15)) => SIGTERM,
                Some(Choice::Number(9)) => SIGKILL,
                Some(Choice::Name(name)) if name == "SIGNAL_SIGTERM" => SIGTERM,
                Some(Choice::Name(name)) if name == "SIGNAL_SIGKILL" => SIGKILL,
                _ => {
                    let problem = "signal: send SIGNAL_SIGTERM or SIGNAL_SIGKILL";
                    return Err(Failure::new(Code::Unimplemented, problem));
                }
            };
            running(&caller, asked.process)?.signal(signal)?;
            Ok(Empty {})
        },
    )
    .await
}

async fn close_stdin(State(guest): Shared, request: Request) -> Response {
    connect::unary(
        guest,
        request,
        MESSAGE_BYTES_MAX,
        async |caller: Caller, asked: CloseStdinRequest| {
            let job = running(&caller, asked.process)?;
            if job.request().terminal.is_some() {
                let problem = "a terminal has no end of input; send the byte 4 as pty instead";
                return Err(Failure::new(Code::Unknown, problem));
            }
            job.close_input();
            Ok(Empty {})
        },
    )
    .await
}

impl wire::ProcessSelector {
    fn read(self) -> Result<Selector, Error> {
        let problem = match (self.pid, self.tag) {
            (Some(pid), None) => return Ok(Selector::Pid(pid.0)),
            (None, Some(tag)) => return Ok(Selector::Tag(tag)),
            (Some(_), Some(_)) => "has both pid and tag; send one of them",
            (None, None) => "is empty; send pid or tag",
        };
        Err(Error::Invalid { field: "process", problem: problem.to_owned() })
    }
}
