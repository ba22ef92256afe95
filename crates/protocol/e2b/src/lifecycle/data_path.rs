//! Requests that go into a sandbox.
//!
//! The agent inside trusts the server, so every permission is checked here, before anything is
//! sent and before a paused sandbox is woken.

mod permit;
mod refusal;
mod target;

use std::net::SocketAddr;
use std::sync::Arc;

use atoll_control::{Access, Port};
use atoll_core::{Phase, Sandbox};
use atoll_proxy::{Credentials, Forwarding, ProxyError, ServiceHost, Target};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::marks::Marks;
use super::state::{DoorConfig, DoorState};
use super::token;
use refusal::Refusal;
use target::{Entry, Found};

/// The in-sandbox API, as clients number ports.
const ENVD_PORT: u16 = 49983;
/// The code interpreter.
const INTERPRETER_PORT: u16 = 49999;
/// The in-sandbox API of the other door.
const EXECD_PORT: u16 = 44772;

const SANDBOX_ID: HeaderName = HeaderName::from_static("e2b-sandbox-id");
const SANDBOX_PORT: HeaderName = HeaderName::from_static("e2b-sandbox-port");
const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");
const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");

/// Whether this request goes into a sandbox and not to a route of the server.
pub fn is_data_path(config: &DoorConfig, headers: &HeaderMap, uri: &Uri) -> bool {
    !matches!(target::find(config, headers, uri), Found::Elsewhere)
}

/// A layer over everything: requests that name a sandbox by headers, host, path or signature go
/// there, all others on.
pub async fn layer(State(door): State<DoorState>, request: Request, next: Next) -> Response {
    let carried = match target::find(&door.config, request.headers(), request.uri()) {
        Found::Elsewhere => return next.run(request).await,
        Found::Malformed(problem) => return (StatusCode::BAD_REQUEST, problem).into_response(),
        Found::Port(entry) => {
            let found = door.directory.find(&entry.id).await;
            carry(&door, found, entry, request).await
        }
        Found::SignedFile => signed_file(&door, request).await,
        Found::Token(token) => by_token(&door, &token, request).await,
    };
    carried.unwrap_or_else(IntoResponse::into_response)
}

/// A link to a file that says no sandbox: the one whose token made the signature is meant.
async fn signed_file(door: &DoorState, request: Request) -> Result<Response, Refusal> {
    let link = permit::SignedLink::read(request.method(), request.uri())?;
    let found = {
        let _turn = door.turns.searches().acquire().await;
        door.directory.search(|sandbox| link.is_signed_with(&sandbox.access_token)).await
    };
    let sandbox = found.ok_or(Refusal::Unauthorized("invalid signature"))?;
    carry_to_envd(door, sandbox, request).await
}

/// A call that says no sandbox: the one whose token it is is meant.
async fn by_token(door: &DoorState, sent: &str, request: Request) -> Result<Response, Refusal> {
    let found = {
        let _turn = door.turns.searches().acquire().await;
        door.directory.search(|sandbox| token::same(sent, &sandbox.access_token)).await
    };
    let sandbox = found.ok_or_else(|| Refusal::NoSandbox(String::new()))?;
    carry_to_envd(door, sandbox, request).await
}

async fn carry_to_envd(
    door: &DoorState,
    sandbox: Arc<Sandbox>,
    request: Request,
) -> Result<Response, Refusal> {
    let id = sandbox.id.clone();
    let entry = Entry::new(id, ENVD_PORT, String::new(), target::path_and_query(request.uri()));
    carry(door, Some(sandbox), entry, request).await
}

async fn carry(
    door: &DoorState,
    found: Option<Arc<Sandbox>>,
    entry: Entry,
    mut request: Request,
) -> Result<Response, Refusal> {
    let no_sandbox = || Refusal::NoSandbox(entry.shown.clone());
    let sandbox = found.ok_or_else(no_sandbox)?;
    let marks = Marks::of(&sandbox);
    if is_preflight(&request) && port_of(entry.port) == Port::Agent {
        return Ok(preflight(request.headers()));
    }
    let now = (door.now)();
    let permit = permit::check(&sandbox, &marks, &entry, &request, now)?;
    if !permit.wakes && sandbox.life.phase() != Phase::Running {
        return Err(no_sandbox());
    }
    clean(&mut request, &sandbox);
    if permit.signed {
        // It names a user, but the link's holder is the one that was signed.
        request.headers_mut().remove(header::AUTHORIZATION);
    }
    if let Some(host) = marks.mask_host.filter(|_| port_of(entry.port) != Port::Agent) {
        let host = host.replace("${PORT}", &entry.port.to_string());
        if let Ok(value) = HeaderValue::try_from(host) {
            request.extensions_mut().insert(ServiceHost(value));
        }
    }
    let client = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let target = Target {
        access: Access::Signed,
        id: entry.id.clone(),
        port: port_of(entry.port),
        path_and_query: format!("{}{}", agent_prefix(entry.port), entry.rest),
    };
    let prefix = entry.ours.clone();
    let forwarding = Forwarding { prefix, credentials: Credentials::Keep, client };
    match door.proxy.forward(target, request, &forwarding).await {
        Ok(response) => Ok(response),
        Err(ProxyError::BadAnswer(_)) if !is_there(door, &entry).await => Err(no_sandbox()),
        Err(error) => Err(Refusal::from_proxy(&entry, &error)),
    }
}

async fn is_there(door: &DoorState, entry: &Entry) -> bool {
    let found = door.directory.find(&entry.id).await;
    found.is_some_and(|sandbox| sandbox.life.phase() == Phase::Running)
}

fn port_of(port: u16) -> Port {
    match port {
        ENVD_PORT | INTERPRETER_PORT | EXECD_PORT => Port::Agent,
        other => Port::Tcp(other),
    }
}

/// Where the agent serves what clients know as a port of its own.
fn agent_prefix(port: u16) -> &'static str {
    match port {
        ENVD_PORT => "/envd",
        INTERPRETER_PORT => "/code-interpreter",
        _ => "",
    }
}

/// No service inside sees what was meant for us.
fn clean(request: &mut Request, sandbox: &Sandbox) {
    let headers = request.headers_mut();
    headers.remove(SANDBOX_ID);
    headers.remove(SANDBOX_PORT);
    headers.remove(TRAFFIC_TOKEN);
    let sent = headers.get(ACCESS_TOKEN).and_then(|value| value.to_str().ok());
    if sent.is_some_and(|sent| token::same(sent, &sandbox.access_token)) {
        headers.remove(ACCESS_TOKEN);
    }
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Web pages of any origin may call; they need the token all the same.
fn preflight(headers: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let allowed = response.headers_mut();
    allowed.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
    allowed.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    allowed.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    if let Some(asked) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        allowed.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    response
}
