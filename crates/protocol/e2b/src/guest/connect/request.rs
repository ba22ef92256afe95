use super::{Code, Failure};
use crate::guest::frame::{Decoder, FrameError, HEAD_BYTES};
use axum::{
    body::BodyDataStream,
    extract::Request,
    http::{HeaderMap, HeaderName, StatusCode, header},
};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;

const UNARY_TYPE: &str = "application/json";
const STREAM_TYPE: &str = "application/connect+json";
const STREAM_ENCODING: HeaderName = HeaderName::from_static("connect-content-encoding");

fn check(headers: &HeaderMap, wanted: &str, encoding: HeaderName) -> Result<(), Failure> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let given = given.unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case(wanted) {
        let message = format!("the content type {given:?} is not served here; send {wanted}");
        return Err(
            Failure::new(Code::Unknown, message).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
        );
    }
    match headers.get(&encoding).map(|value| value.as_bytes()) {
        None | Some(b"identity" | b"") => Ok(()),
        Some(other) => Err(Failure::new(
            Code::Unimplemented,
            format!(
                "the compression {:?} is not supported; send {encoding}: identity",
                String::from_utf8_lossy(other)
            ),
        )),
    }
}

/// Checks what a streaming call says about itself, before its body.
pub(crate) fn check_stream(headers: &HeaderMap) -> Result<(), Failure> {
    check(headers, STREAM_TYPE, STREAM_ENCODING)
}

fn parse<Q: DeserializeOwned>(message: &[u8]) -> Result<Q, Failure> {
    let parsed = serde_json::from_slice(message);
    parsed.map_err(|error| Failure::invalid(format!("the message is not valid: {error}")))
}

/// The message of a unary call.
pub(crate) async fn read_unary<Q: DeserializeOwned>(
    request: Request,
    limit: usize,
) -> Result<Q, Failure> {
    check(request.headers(), UNARY_TYPE, header::CONTENT_ENCODING)?;
    parse(&axum::body::to_bytes(request.into_body(), limit).await.map_err(|_| {
        let message = format!("the body broke off, or is larger than the {limit} bytes allowed");
        Failure::new(Code::ResourceExhausted, message)
    })?)
}

/// The one message of a call that answers with a stream.
pub(crate) async fn read_one<Q: DeserializeOwned>(
    request: Request,
    limit: usize,
) -> Result<Q, Failure> {
    let mut messages = Messages::new(request, limit);
    let one = |problem| Failure::new(Code::Unimplemented, format!("{problem}; send exactly one"));
    let message = messages.next().await?.ok_or_else(|| one("the request has no message"))?;
    match messages.next::<serde_json::Value>().await? {
        None => Ok(message),
        Some(_) => Err(one("the request has several messages")),
    }
}

/// The messages of a request, as they come.
pub(crate) struct Messages {
    body: BodyDataStream,
    decoder: Decoder,
    ready: VecDeque<Bytes>,
}

impl Messages {
    pub(crate) fn new(request: Request, limit: usize) -> Self {
        let body = request.into_body().into_data_stream();
        Self { body, decoder: Decoder::new(limit), ready: VecDeque::new() }
    }

    /// The next message; nothing after the last.
    pub(crate) async fn next<Q: DeserializeOwned>(&mut self) -> Result<Option<Q>, Failure> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return parse(&message).map(Some);
            }
            match self.body.next().await {
                None => return self.decoder.finish().map(|()| None).map_err(Failure::from),
                Some(Err(error)) => {
                    return Err(Failure::invalid(format!("the request broke off: {error}")));
                }
                Some(Ok(bytes)) => self.decoder.push(&bytes),
            }
            while let Some(frame) = self.decoder.next_frame()? {
                self.ready.push_back(frame.message);
            }
        }
    }

    /// Reads what is left, up to a bound, so that the sender gets to read its refusal.
    pub(crate) async fn drain(&mut self) {
        let mut left = DRAINED_BYTES_MAX;
        while let Some(Ok(bytes)) = self.body.next().await {
            left = left.saturating_sub(bytes.len() + HEAD_BYTES);
            if left == 0 {
                return;
            }
        }
    }
}

const DRAINED_BYTES_MAX: usize = 1 << 20;

impl From<FrameError> for Failure {
    fn from(error: FrameError) -> Self {
        let code = match error {
            FrameError::TooLong { .. } => Code::ResourceExhausted,
            FrameError::Compressed => Code::Unimplemented,
            FrameError::UnknownFlags { .. } | FrameError::Incomplete { .. } => {
                Code::InvalidArgument
            }
        };
        Self::new(code, error.to_string())
    }
}
