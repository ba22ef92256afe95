//! Creations that may be sent twice and happen once.
//!
//! The key and a digest of the body stay with the sandbox, so that a repetition finds it after a
//! restart too; the key is free again once the sandbox is gone.

use std::sync::Arc;

use atoll_control::{Filter, Paging};
use atoll_core::{Sandbox, TenantId};
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::error::ApiError;
use super::marks::Marks;
use super::state::DoorState;
use super::turns::Turns;
use super::wire::Version;

const HEADER: &str = "idempotency-key";
const KEY_BYTES_MAX: usize = 255;
/// Sandboxes of one tenant that are looked at.
const SEARCHED_MAX: usize = 100_000;

/// A key and what it was sent with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    text: String,
    body: String,
}

impl Key {
    /// The key of a request, if it has one.
    pub(crate) fn read(
        headers: &HeaderMap,
        body: &Value,
        version: Version,
    ) -> Result<Option<Self>, ApiError> {
        let Some(value) = headers.get(HEADER) else { return Ok(None) };
        let text = value.to_str().unwrap_or_default();
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if text.is_empty() || text.len() > KEY_BYTES_MAX || !text.bytes().all(fits) {
            let problem = format!("write 1 to {KEY_BYTES_MAX} of a-z, 0-9 and '-'");
            return Err(ApiError::invalid("Idempotency-Key", problem));
        }
        // Members of an object come in sorted order, so that equal bodies have equal digests.
        let digest = Sha256::digest(format!("{version:?} {body}"));
        let body = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(Self { text: text.to_owned(), body }))
    }

    /// As it stays with the sandbox.
    pub(crate) fn mark(&self) -> (String, String) {
        (self.text.clone(), self.body.clone())
    }
}

/// Holds a key until the creation is over.
pub(crate) struct Holding {
    all: Turns,
    entry: (TenantId, String),
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.all.keys().remove(&self.entry);
    }
}

/// Takes the key for one creation.
///
/// # Errors
/// 409 while another creation holds it.
pub(crate) fn hold(door: &DoorState, tenant: &TenantId, key: &Key) -> Result<Holding, ApiError> {
    let entry = (tenant.clone(), key.text.clone());
    if !door.turns.keys().insert(entry.clone()) {
        let message = "Idempotency-Key: a creation with this key is under way";
        return Err(ApiError::conflict(message));
    }
    Ok(Holding { all: door.turns.clone(), entry })
}

/// The sandbox that was made with this key, if it is still there.
///
/// # Errors
/// 422 when the key came with another body then.
pub(crate) async fn find(
    door: &DoorState,
    tenant: &TenantId,
    key: &Key,
) -> Result<Option<Arc<Sandbox>>, ApiError> {
    let paging = Paging { skip: 0, take: SEARCHED_MAX };
    let all = door.control.list(tenant, &Filter::default(), paging).await?;
    let marked = |sandbox: &Arc<Sandbox>| {
        Marks::of(sandbox).idempotency.filter(|(text, _)| *text == key.text)
    };
    let found = all.items.into_iter().find_map(|sandbox| {
        let (_, body) = marked(&sandbox)?;
        Some((sandbox, body))
    });
    match found {
        None => Ok(None),
        Some((sandbox, body)) if body == key.body => Ok(Some(sandbox)),
        Some(_) => Err(ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Idempotency-Key: this key was used with another body; use a new key",
        )),
    }
}
