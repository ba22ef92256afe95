use super::error::{Code, Failure};
use atoll_guest::{Guest, Identity};
use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request},
    http::{StatusCode, request::Parts},
};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The largest JSON body.
const JSON_BYTES_MAX: usize = 8 << 20;

/// A JSON body, whatever its declared type; an empty one counts as `{}`.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let limited = axum::body::to_bytes(request.into_body(), JSON_BYTES_MAX).await;
        let bytes: Bytes = limited.map_err(|_| {
            let message = format!("the body could not be read, or exceeds {JSON_BYTES_MAX} bytes");
            Failure::new(StatusCode::BAD_REQUEST, Code::InvalidRequestBody, message)
        })?;
        let text: &[u8] = if bytes.trim_ascii().is_empty() { b"{}" } else { &bytes };
        let parsed = serde_json::from_slice(text);
        parsed
            .map(Self)
            .map_err(|error| Failure::invalid(format!("the body is not valid: {error}")))
    }
}

/// The query's parameters in order; names may repeat.
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(super) fn first(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn required(&self, name: &str) -> Result<&str, Failure> {
        self.first(name)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| Failure::missing_query(name))
    }

    /// Every value of a parameter that must occur at least once.
    pub(super) fn all(&self, name: &str) -> Result<Vec<String>, Failure> {
        let matching = self.0.iter().filter(|(key, value)| key == name && !value.is_empty());
        let values: Vec<String> = matching.map(|(_, value)| value.clone()).collect();
        if values.is_empty() { Err(Failure::missing_query(name)) } else { Ok(values) }
    }

    /// A number that may be absent.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(text) = self.first(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            Failure::invalid(format!(
                "{name}: {text:?} is not a number; give a whole number from 0"
            ))
        })
    }
}

impl<S: Sync> FromRequestParts<S> for Parameters {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let query = Query::try_from_uri(&parts.uri);
        query
            .map(|Query(pairs)| Self(pairs))
            .map_err(|error| Failure::invalid(format!("the query cannot be read: {error}")))
    }
}

/// Who a file operation runs as: named by the route's prefix, else the agent itself.
pub(super) struct Caller(pub(super) Option<Identity>);

impl FromRequestParts<Arc<Guest>> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, guest: &Arc<Guest>) -> Result<Self, Failure> {
        let raw = RawPathParams::from_request_parts(parts, guest).await;
        let raw = raw.map_err(|error| Failure::invalid(error.to_string()))?;
        let find = |name| raw.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
        match (find("uid"), find("gid")) {
            (Some(uid), Some(gid)) => {
                let (uid, gid) = (parse_id("uid", uid)?, parse_id("gid", gid)?);
                Ok(Self(Some(guest.identity(uid, gid).await)))
            }
            _ => Ok(Self(None)),
        }
    }
}

fn parse_id(name: &str, text: &str) -> Result<u32, Failure> {
    text.parse().ok().filter(|id| *id != u32::MAX).ok_or_else(|| {
        Failure::invalid(format!(
            "{name}: {text:?} is not an id; give a number from 0 to 4294967294"
        ))
    })
}
