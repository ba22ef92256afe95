//! Parts of the contract that belong to other runtimes, and telemetry that is only accepted.

use axum::http::StatusCode;

use super::error::ApiError;
use super::extract::Body;
use super::wire;

/// Everything about templates.
pub(super) async fn template() -> ApiError {
    ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        "FSB::API_NOT_SUPPORTED",
        "this server has no templates; create sandboxes from an image or a snapshot",
    )
}

/// Everything about pools.
pub(super) async fn pool() -> ApiError {
    ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        "KUBERNETES::POOL_NOT_SUPPORTED",
        "this server has no named pools; create sandboxes from an image or a snapshot",
    )
}

/// `POST /metrics/events`: what an SDK measured. Checked, then dropped.
pub(super) async fn metrics_event(body: Body) -> Result<StatusCode, ApiError> {
    wire::check_metrics_event(&body.required()?)?;
    Ok(StatusCode::NO_CONTENT)
}
