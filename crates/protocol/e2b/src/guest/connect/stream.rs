use super::Failure;
use crate::guest::frame;
use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde::Serialize;
use std::{convert::Infallible, future::Future};

/// Exactly this: a charset after it breaks clients.
const STREAM_TYPE: HeaderValue = HeaderValue::from_static("application/connect+json");

#[derive(Serialize)]
struct End<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Failure>,
}

/// A frame with one message.
pub(crate) fn message_frame(message: &impl Serialize) -> Vec<u8> {
    let json = serde_json::to_vec(message).expect("messages hold nothing that JSON cannot");
    let mut bytes = Vec::with_capacity(json.len() + frame::HEAD_BYTES);
    frame::write(&mut bytes, 0, &json);
    bytes
}

/// The frame that every stream must end with.
pub(crate) fn end_frame(error: Option<&Failure>) -> Vec<u8> {
    let json = serde_json::to_vec(&End { error }).expect("errors are plain text");
    let mut bytes = Vec::new();
    frame::write(&mut bytes, frame::END_STREAM, &json);
    bytes
}

/// A stream that is nothing but an error.
pub(crate) fn failed_stream(failure: &Failure) -> Response {
    stream_response(Body::from(end_frame(Some(failure))))
}

pub(crate) fn stream_response(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, STREAM_TYPE);
    response
}

/// Turns something that makes bytes until it has no more into a body's stream.
pub(crate) fn frames<S, F>(
    state: S,
    next: impl FnMut(S) -> F + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send
where
    S: Send + 'static,
    F: Future<Output = Option<(Bytes, S)>> + Send,
{
    let mut next = next;
    stream::unfold(state, move |state| {
        let step = next(state);
        async move { step.await.map(|(bytes, state)| (Ok(bytes), state)) }
    })
}
