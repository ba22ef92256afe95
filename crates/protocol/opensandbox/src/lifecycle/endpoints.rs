//! Where a port of a sandbox can be reached: always this server, by one of three kinds of path.

use atoll_core::TenantId;
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

use super::error::{ApiError, Problem};
use super::extract::{PathPort, PathSandbox};
use super::form::Query;
use super::render;
use super::sandboxes::find;
use super::state::DoorState;
use atoll_core::Phase;

/// `GET /sandboxes/{id}/endpoints/{port}`.
///
/// By default the endpoint is a capability: whoever holds it reaches the port, so browsers and
/// plain HTTP clients need no header. Behind the server proxy the API key is needed, or one of
/// the headers that are handed out here: clients differ in which of them they send.
pub(super) async fn show(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    PathPort(port): PathPort,
    query: Query,
    headers: HeaderMap,
) -> Result<Json<Value>, ApiError> {
    let by_proxy = query.flag("use_server_proxy")?;
    let expires = expiry(&door, &query, by_proxy)?;
    let sandbox = find(&door, &tenant, &id).await?;
    if let phase @ (Phase::Ended | Phase::Failed) = sandbox.life.phase() {
        let (state, _) = render::state(phase);
        let why = sandbox.life.diagnostic().map_or("", |diagnostic| &diagnostic.message);
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "DOCKER::SANDBOX_NOT_RUNNING",
            format!("the sandbox is {state} and has no endpoints any more: {why}"),
        ));
    }
    let host = host(&door, &headers)?;
    let token = &sandbox.access_token;
    Ok(Json(match expires {
        Some(expires) => {
            let signed = door.signer.sign(&id, port, expires);
            json!({"endpoint": format!("{host}/v1/signed/{signed}/{port}")})
        }
        None if by_proxy => json!({
            "endpoint": format!("{host}/v1/sandboxes/{id}/proxy/{port}"),
            "headers": {"OpenSandbox-Secure-Access": token, "X-EXECD-ACCESS-TOKEN": token},
        }),
        None => json!({"endpoint": format!("{host}/v1/route/{id}.{token}/{port}")}),
    }))
}

/// `expires` of the query: seconds since the epoch, in the future.
fn expiry(door: &DoorState, query: &Query, by_proxy: bool) -> Result<Option<u64>, ApiError> {
    let Some(text) = query.last("expires") else { return Ok(None) };
    let expires: i64 = text.trim().parse().map_err(|_| {
        let message = "Input should be a valid integer".to_owned();
        Problem::new(["query", "expires"], "int_parsing", message).with_input(text.into())
    })?;
    if by_proxy {
        let problem = "signed endpoints don't go through the server proxy; leave one of them out";
        return Err(ApiError::invalid("expires", problem));
    }
    let now = (door.now)().as_micros() / 1_000_000;
    match u64::try_from(expires) {
        Ok(seconds) if expires > now => Ok(Some(seconds)),
        Ok(_) | Err(_) => Err(ApiError::invalid("expires", "must lie in the future")),
    }
}

/// The host a client should use: the configured one, else the one it used just now.
fn host<'a>(door: &'a DoorState, headers: &'a HeaderMap) -> Result<&'a str, ApiError> {
    if let Some(host) = &door.config.public_host {
        return Ok(host);
    }
    let sent = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let is_host = |host: &&str| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b);
        !host.is_empty() && host.len() <= 255 && host.bytes().all(fits)
    };
    sent.filter(is_host).ok_or_else(|| {
        ApiError::invalid("Host", "the request needs a Host header that names this server")
    })
}
