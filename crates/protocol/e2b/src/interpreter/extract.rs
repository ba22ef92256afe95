use super::failure::Failure;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;

/// The largest body.
const BODY_BYTES_MAX: usize = 8 << 20;

/// A JSON body, whatever its declared type; an empty one counts as `{}`.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let limited = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX).await;
        let bytes = limited.map_err(|_| {
            Failure::Body(format!("the body could not be read, or exceeds {BODY_BYTES_MAX} bytes"))
        })?;
        let text: &[u8] = if bytes.trim_ascii().is_empty() { b"{}" } else { &bytes };
        let parsed = serde_json::from_slice(text);
        parsed.map(Self).map_err(|error| Failure::Body(error.to_string()))
    }
}
