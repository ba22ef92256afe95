//! The Connect protocol with its JSON codec: unary calls and streams over HTTP/1.1.

mod error;
mod headers;
mod request;
mod stream;

pub(super) use error::{Code, Failure, told};
pub(super) use headers::{keepalive, timeout};
pub(super) use request::{Messages, check_stream};
pub(super) use stream::{end_frame, failed_stream, frames, message_frame, stream_response};

use super::caller::Caller;
use atoll_guest::Guest;
use axum::{
    Json,
    extract::Request,
    response::{IntoResponse, Response},
};
use request::{read_one, read_unary};
use serde::{Serialize, de::DeserializeOwned};
use std::{future::Future, sync::Arc};

/// The largest message of most calls.
pub(super) const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// The largest message that carries input for a process; base64 makes that 48 MiB of input.
pub(super) const INPUT_BYTES_MAX: usize = 64 << 20;

/// Answers a unary call within the time that it allows.
pub(super) async fn unary<Q, A, F>(
    guest: Arc<Guest>,
    request: Request,
    limit: usize,
    answer: impl FnOnce(Caller, Q) -> F,
) -> Response
where
    Q: DeserializeOwned,
    A: Serialize,
    F: Future<Output = Result<A, Failure>>,
{
    let headers = request.headers().clone();
    let answered = async {
        let time = timeout(&headers)?;
        let work = async {
            let message = read_unary(request, limit).await?;
            answer(Caller::identify(guest, &headers).await?, message).await
        };
        match time {
            Some(time) => tokio::time::timeout(time, work)
                .await
                .unwrap_or_else(|_| Err(Failure::deadline(time))),
            None => work.await,
        }
    };
    match answered.await {
        Ok(answer) => Json(answer).into_response(),
        Err(failure) => failure.into_response(),
    }
}

/// Answers a call with a stream; whatever is wrong is told inside the stream.
pub(super) async fn streaming<Q, F>(
    guest: Arc<Guest>,
    request: Request,
    answer: impl FnOnce(Caller, Q) -> F,
) -> Response
where
    Q: DeserializeOwned,
    F: Future<Output = Result<Response, Failure>>,
{
    if let Err(refusal) = check_stream(request.headers()) {
        return refusal.into_response();
    }
    let headers = request.headers().clone();
    let answered = async {
        let message = read_one(request, MESSAGE_BYTES_MAX).await?;
        answer(Caller::identify(guest, &headers).await?, message).await
    };
    answered.await.unwrap_or_else(|failure| failed_stream(&failure))
}
