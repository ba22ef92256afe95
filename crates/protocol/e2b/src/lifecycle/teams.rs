//! Teams and keys, as far as the command line looks at them: one tenant is one team.

use atoll_core::TenantId;
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::error::ApiError;
use super::state::DoorState;
use super::{auth, time};

/// `GET /teams`. The key shown is the one that the caller sent.
pub(super) async fn list(
    Extension(tenant): Extension<TenantId>,
    headers: HeaderMap,
) -> Json<Value> {
    let key = auth::key(&headers).unwrap_or_default();
    Json(json!([{
        "teamID": tenant.as_str(),
        "name": tenant.as_str(),
        "apiKey": key,
        "isDefault": true,
    }]))
}

/// `GET /api-keys`: the one that the caller sent, masked.
pub(super) async fn keys(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    headers: HeaderMap,
) -> Json<Value> {
    let key = auth::key(&headers).unwrap_or_default();
    let (prefix, rest) = match key.split_once('_') {
        Some((prefix, rest)) => (format!("{prefix}_"), rest),
        None => (String::new(), key),
    };
    let visible = |text: &str, count: usize| text.chars().take(count).collect::<String>();
    let tail: String = visible(&rest.chars().rev().collect::<String>(), 4).chars().rev().collect();
    Json(json!([{
        "id": tenant.as_str(),
        "name": tenant.as_str(),
        "mask": {
            "prefix": prefix,
            "valueLength": rest.chars().count(),
            "maskedValuePrefix": "",
            "maskedValueSuffix": tail,
        },
        "createdAt": time::text(atoll_core::Timestamp::from_micros(0)),
        "createdBy": null,
        "lastUsed": time::text((door.now)()),
    }]))
}

/// Everything that would make, change or remove a key.
pub(super) async fn refuse_keys() -> ApiError {
    ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        "keys are not made through this API; the operator names them in the configuration \
         ([[tenants]], keys)",
    )
}

/// `POST /access-tokens`.
pub(super) async fn refuse_access_tokens() -> ApiError {
    ApiError::new(StatusCode::GONE, "access tokens are no longer made; use an API key")
}

/// `GET /teams/{id}/metrics…`.
pub(super) async fn refuse_metrics() -> ApiError {
    ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        "this server keeps no history per team; GET /metrics has its numbers of now",
    )
}
