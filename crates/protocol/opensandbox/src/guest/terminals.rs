use super::{
    error::Failure,
    extract::{Body, Parameters},
    wire::{SessionOpened, TerminalCondition, TerminalRequest},
};
use atoll_guest::{
    Error, Guest,
    terminal::{Attachment, Mode, Next, Stream, Terminal},
};
use axum::{
    Json,
    extract::{
        Path, State, WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket},
    },
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    time::{Instant, interval_at},
};

const PING_EVERY: Duration = Duration::from_secs(30);
const FRAME_BYTES_MAX: usize = 1 << 20;
const CLOSE_TAKEN_OVER: u16 = 4001;
/// Typed frames that wait for a process that does not read.
const INPUT_QUEUE: usize = 16;

const TAG_STDIN: u8 = 0;
const TAG_STDOUT: u8 = 1;
const TAG_STDERR: u8 = 2;
const TAG_REPLAY: u8 = 3;

/// What a client may say in a text frame.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Control {
    Stdin { data: String },
    Resize { cols: u16, rows: u16 },
    Signal { signal: String },
    Ping,
}

/// Why the connection is over.
enum Over {
    Gone,
    Close(Option<CloseFrame>),
}

pub(super) async fn open(
    State(guest): State<Arc<Guest>>,
    Body(request): Body<TerminalRequest>,
) -> Result<Response, Failure> {
    let session_id = guest.terminals().open(request.cwd, request.command)?;
    Ok((StatusCode::CREATED, Json(SessionOpened { session_id })).into_response())
}

pub(super) async fn condition(
    State(guest): State<Arc<Guest>>,
    Path(id): Path<String>,
) -> Result<Json<TerminalCondition>, Failure> {
    let terminal = guest.terminals().find(&id)?;
    let condition = terminal.condition();
    let (running, output_offset) = (condition.running, condition.output_offset);
    Ok(Json(TerminalCondition { session_id: id, running, output_offset }))
}

pub(super) async fn close(
    State(guest): State<Arc<Guest>>,
    Path(id): Path<String>,
) -> Result<(), Failure> {
    Ok(guest.terminals().close(&id)?)
}

pub(super) async fn attach(
    State(guest): State<Arc<Guest>>,
    Path(id): Path<String>,
    parameters: Parameters,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Failure> {
    let terminal = guest.terminals().find(&id)?;
    let pipes = matches!(parameters.first("pty"), Some("0" | "false"));
    let mode = if pipes { Mode::Pipes } else { Mode::Terminal };
    let takeover = matches!(parameters.first("takeover"), Some("1" | "true"));
    let since = parameters.number("since")?;
    let attachment = match terminal.attach(mode, since, takeover).await {
        Err(error @ (Error::Attached { .. } | Error::Unknown { .. })) => return Err(error.into()),
        other => other,
    };
    let upgrade = upgrade.max_message_size(FRAME_BYTES_MAX).max_frame_size(FRAME_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |mut socket| async move {
        let close = match attachment {
            Ok(attachment) => match serve(&mut socket, &terminal, attachment).await {
                Over::Close(frame) => frame,
                Over::Gone => return,
            },
            Err(error) => {
                let message = failure("START_FAILED", Failure::from(error).message);
                socket.send(message).await.ok();
                None
            }
        };
        // The client may have gone first.
        socket.send(Message::Close(close)).await.ok();
    }))
}

fn failure(code: &str, error: impl Into<String>) -> Message {
    text(&json!({"type": "error", "code": code, "error": error.into()}))
}

fn text(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}

fn tagged(tag: u8, parts: &[&[u8]]) -> Message {
    let mut frame = vec![tag];
    parts.iter().for_each(|part| frame.extend_from_slice(part));
    Message::Binary(frame.into())
}

async fn serve(socket: &mut WebSocket, terminal: &Arc<Terminal>, mut client: Attachment) -> Over {
    let (typed, failed) = start_typing(terminal);
    match greet(socket, terminal, &mut client).await {
        Ok(()) => converse(socket, terminal, client, typed, failed).await,
        Err(_) => Over::Gone,
    }
}

async fn greet(
    socket: &mut WebSocket,
    terminal: &Terminal,
    client: &mut Attachment,
) -> Result<(), axum::Error> {
    let mode = if terminal.mode() == Some(Mode::Pipes) { "pipe" } else { "pty" };
    let hello = json!({"type": "connected", "session_id": terminal.id(), "mode": mode});
    socket.send(text(&hello)).await?;
    let (start, bytes) = client.replay();
    if bytes.is_empty() {
        return Ok(());
    }
    socket.send(tagged(TAG_REPLAY, &[&start.to_be_bytes(), &bytes])).await
}

/// Typing waits when the process does not read, so it has a task of its own: output goes on.
fn start_typing(terminal: &Arc<Terminal>) -> (mpsc::Sender<Vec<u8>>, mpsc::Receiver<Error>) {
    let (typed, mut queue) = mpsc::channel::<Vec<u8>>(INPUT_QUEUE);
    let (report, failed) = mpsc::channel(1);
    let terminal = Arc::clone(terminal);
    tokio::spawn(async move {
        while let Some(bytes) = queue.recv().await {
            if let Err(error) = terminal.write(&bytes).await {
                // One report is enough, and the client may be gone.
                report.try_send(error).ok();
            }
        }
    });
    (typed, failed)
}

async fn converse(
    socket: &mut WebSocket,
    terminal: &Terminal,
    mut client: Attachment,
    typed: mpsc::Sender<Vec<u8>>,
    mut failed: mpsc::Receiver<Error>,
) -> Over {
    let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    loop {
        let room_then_frame = async {
            let room = typed.reserve().await;
            (room, socket.recv().await)
        };
        let reply = tokio::select! {
            next = client.next() => match show(next) {
                Ok(message) => Some(message),
                Err((last, over)) => {
                    if let Some(last) = last {
                        socket.send(last).await.ok();
                    }
                    return over;
                }
            },
            (room, frame) = room_then_frame => match (room, frame) {
                (Ok(room), Some(Ok(frame))) => match hear(terminal, frame, room) {
                    Ok(reply) => reply,
                    Err(over) => return over,
                },
                _ => return Over::Gone,
            },
            Some(error) = failed.recv() => {
                Some(failure("STDIN_WRITE_FAILED", Failure::from(error).message))
            }
            _ = ping.tick() => Some(Message::Ping(Vec::new().into())),
        };
        if let Some(reply) = reply
            && socket.send(reply).await.is_err()
        {
            return Over::Gone;
        }
    }
}

/// The frame for what the terminal did, or the last frame and the end.
fn show(next: Next) -> Result<Message, (Option<Message>, Over)> {
    match next {
        Next::Output(piece) => {
            let tag = if piece.stream == Stream::Stderr { TAG_STDERR } else { TAG_STDOUT };
            Ok(tagged(tag, &[&piece.bytes]))
        }
        Next::Ended(code) => {
            Err((Some(text(&json!({"type": "exit", "exit_code": code}))), Over::Close(None)))
        }
        Next::Replaced => {
            let frame = CloseFrame { code: CLOSE_TAKEN_OVER, reason: "TAKEN_OVER".into() };
            Err((Some(failure("TAKEN_OVER", "another client took over")), Over::Close(Some(frame))))
        }
        Next::Closed => {
            Err((Some(failure("SESSION_GONE", "the terminal was deleted")), Over::Close(None)))
        }
    }
}

/// Does what the client's frame asks; answers the reply, if any.
fn hear(
    terminal: &Terminal,
    frame: Message,
    room: mpsc::Permit<'_, Vec<u8>>,
) -> Result<Option<Message>, Over> {
    let control = match frame {
        Message::Binary(bytes) => match bytes.split_first() {
            Some((&TAG_STDIN, typed)) => {
                room.send(typed.to_vec());
                return Ok(None);
            }
            _ => return Ok(Some(failure("INVALID_FRAME", "binary frames must begin with byte 0"))),
        },
        Message::Text(text) => serde_json::from_str(&text),
        Message::Close(_) => return Err(Over::Gone),
        Message::Ping(_) | Message::Pong(_) => return Ok(None),
    };
    let done = match control {
        Err(error) => {
            return Ok(Some(failure("INVALID_FRAME", format!("not understood: {error}"))));
        }
        Ok(Control::Ping) => return Ok(Some(text(&json!({"type": "pong"})))),
        Ok(Control::Stdin { data }) => {
            room.send(data.into_bytes());
            Ok(())
        }
        Ok(Control::Resize { cols, rows }) => terminal.resize(cols, rows),
        Ok(Control::Signal { signal }) => match signal_number(&signal) {
            Some(number) => terminal.signal(number),
            None => {
                let problem = format!("unknown signal {signal:?}; use a name such as SIGINT");
                return Ok(Some(failure("INVALID_FRAME", problem)));
            }
        },
    };
    Ok(done.err().map(|error| failure("RUNTIME_ERROR", Failure::from(error).message)))
}

/// Linux's numbers for the signals that a terminal's user may want to send.
fn signal_number(name: &str) -> Option<i32> {
    let upper = name.to_ascii_uppercase();
    Some(match upper.strip_prefix("SIG").unwrap_or(&upper) {
        "HUP" => 1,
        "INT" => 2,
        "QUIT" => 3,
        "KILL" => 9,
        "USR1" => 10,
        "USR2" => 12,
        "TERM" => 15,
        "CONT" => 18,
        "STOP" => 19,
        "TSTP" => 20,
        "WINCH" => 28,
        _ => return None,
    })
}
