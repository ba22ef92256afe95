//! Files for builds: are they here, and take them.

use atoll_core::TenantId;
use atoll_template::Grant;
use axum::Json;
use axum::body::Body as RawBody;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{Desk, Names, upload_error};
use crate::lifecycle::error::ApiError;
use crate::lifecycle::form::Query;

/// `GET /templates/{id}/files/{hash}`.
pub(super) async fn presence(
    State(desk): State<Desk>,
    Extension(tenant): Extension<TenantId>,
    names: Names,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (name, hash) = (names.get("id"), names.get("hash"));
    let found = desk.service.presence(&tenant, name, hash).await?;
    let id = &desk.service.own(&tenant, name)?.id;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST.as_str());
    let host = host.ok_or_else(|| ApiError::invalid("Host", "is missing; send it"))?;
    let scheme = match text("x-forwarded-proto") {
        Some("https") => "https",
        Some(_) | None => "http",
    };
    let Grant { tenant, until_micros, signature } = &found.grant;
    let url = format!(
        "{scheme}://{host}/templates/{id}/files/{hash}\
         ?for={tenant}&until={until_micros}&signature={signature}"
    );
    let body = json!({ "present": found.present, "url": url });
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// `PUT /templates/{id}/files/{hash}`, as the URL of [`presence`] has it.
pub(super) async fn receive(
    State(desk): State<Desk>,
    names: Names,
    query: Query,
    headers: HeaderMap,
    body: RawBody,
) -> Result<StatusCode, ApiError> {
    let part = |name: &str| {
        let value = query.get(name).map(str::to_owned);
        value.ok_or_else(|| ApiError::invalid(name, "is missing in the URL; use it as you got it"))
    };
    let until = part("until")?.parse();
    let grant = Grant {
        tenant: part("for")?,
        until_micros: until.map_err(|_| ApiError::invalid("until", "is no number"))?,
        signature: part("signature")?,
    };
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length = length.and_then(|text| text.parse().ok()).ok_or_else(|| {
        let message = "Content-Length: is required, with the exact number of bytes";
        ApiError::new(StatusCode::LENGTH_REQUIRED, message)
    })?;
    let body = body.into_data_stream();
    let received = desk.service.receive(&grant, names.get("hash"), length, body).await;
    received.map_err(upload_error)?;
    Ok(StatusCode::OK)
}
