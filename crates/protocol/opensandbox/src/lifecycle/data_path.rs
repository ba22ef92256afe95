//! Requests that go into a sandbox, by four kinds of permission.

use std::net::SocketAddr;

use atoll_control::{Access, Port};
use atoll_core::SandboxId;
use atoll_proxy::{Credentials, Forwarding, Target};
use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::auth::{self, API_KEY, EXECD_TOKEN, SECURE_ACCESS};
use super::egress;
use super::error::{ApiError, Doing};
use super::extract::{self, PathPort, PathSandbox};
use super::signed::TokenError;
use super::state::DoorState;

/// Where the agent's API is, as clients number ports.
const AGENT_PORT: u16 = 44772;
/// Where clients expect the control of egress rules; answered by the server itself.
const EGRESS_PORT: u16 = 18080;
/// Names a sandbox and a port, whatever the path.
const INGRESS_TO: HeaderName = HeaderName::from_static("opensandbox-ingress-to");

/// A request whose permission is settled.
struct Entry {
    access: Access,
    id: SandboxId,
    port: u16,
    /// Segments of the path that are ours.
    segments: usize,
    /// What stands before the request's path for the client.
    mount: &'static str,
    credentials: Credentials,
}

/// `/sandboxes/{id}/proxy/{port}/…`: for whoever has the API key, or the sandbox's token in one
/// of two headers.
pub(super) async fn by_key(
    State(door): State<DoorState>,
    request: Request,
) -> Result<Response, ApiError> {
    let access = header_access(&door, request.headers())?;
    let (mut parts, body) = request.into_parts();
    let PathSandbox(id) = PathSandbox::from_request_parts(&mut parts, &()).await?;
    let PathPort(port) = PathPort::from_request_parts(&mut parts, &()).await?;
    let credentials = Credentials::Drop;
    let entry = Entry { access, id, port, segments: 4, mount: "/v1", credentials };
    carry(&door, entry, Request::from_parts(parts, body)).await
}

/// `/route/{id}.{token}/{port}/…`: for whoever knows the path.
pub(super) async fn by_token(
    State(door): State<DoorState>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let grant = extract::path_part(&mut parts, "grant").await;
    let (id, token) = grant.split_once('.').unwrap_or((&grant, ""));
    let id = extract::sandbox_id(id)?;
    let PathPort(port) = PathPort::from_request_parts(&mut parts, &()).await?;
    let access = Access::Token(token.to_owned());
    let credentials = Credentials::Keep;
    let entry = Entry { access, id, port, segments: 3, mount: "/v1", credentials };
    carry(&door, entry, Request::from_parts(parts, body)).await
}

/// `/signed/{token}/{port}/…`: for whoever knows the path, until its time is over.
pub(super) async fn by_signature(
    State(door): State<DoorState>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let token = extract::path_part(&mut parts, "token").await;
    let PathPort(port) = PathPort::from_request_parts(&mut parts, &()).await?;
    let (id, signed_port) = check_signed(&door, &token)?;
    if signed_port != port {
        return Err(forbidden("SIGNED_ROUTE_INVALID", "this link was signed for another port"));
    }
    let (access, credentials) = (Access::Signed, Credentials::Keep);
    let entry = Entry { access, id, port, segments: 3, mount: "/v1", credentials };
    carry(&door, entry, Request::from_parts(parts, body)).await
}

/// A layer over everything: requests that name a sandbox in `OpenSandbox-Ingress-To` go there,
/// whatever their path.
pub async fn ingress(State(door): State<DoorState>, request: Request, next: Next) -> Response {
    let Some(to) = request.headers().get(INGRESS_TO) else { return next.run(request).await };
    let to = to.to_str().unwrap_or_default().to_owned();
    match ingress_entry(&door, &to, request.headers()) {
        Ok(entry) => carry(&door, entry, request).await.into_response(),
        Err(error) => error.into_response(),
    }
}

fn ingress_entry(door: &DoorState, to: &str, headers: &HeaderMap) -> Result<Entry, ApiError> {
    let (access, id, port) = if to.matches('-').count() > 1 {
        let (id, port) = check_signed(door, to)?;
        (Access::Signed, id, port)
    } else {
        let access = header_access(door, headers)?;
        let (id, port) = to.split_once('-').unwrap_or((to, ""));
        (access, extract::sandbox_id(id)?, extract::port(port)?)
    };
    Ok(Entry { access, id, port, segments: 0, mount: "", credentials: Credentials::Keep })
}

fn header_access(door: &DoorState, headers: &HeaderMap) -> Result<Access, ApiError> {
    let token = headers.get(SECURE_ACCESS).or_else(|| headers.get(EXECD_TOKEN));
    match token.and_then(|value| value.to_str().ok()) {
        Some(token) if !headers.contains_key(API_KEY) => Ok(Access::Token(token.to_owned())),
        Some(_) | None => auth::tenant(door, headers)
            .map(Access::Tenant)
            .map_err(|error| ApiError::from_control(Doing::Read, &error)),
    }
}

fn check_signed(door: &DoorState, token: &str) -> Result<(SandboxId, u16), ApiError> {
    let now = u64::try_from((door.now)().as_micros() / 1_000_000).unwrap_or(0);
    match door.signer.check(token, now) {
        Ok(grant) => Ok((grant.id, grant.port)),
        Err(TokenError::Expired) => Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "SIGNED_ROUTE_EXPIRED",
            "the time of this link is over; ask for a new one",
        )),
        Err(TokenError::Forged) => {
            Err(forbidden("SIGNED_ROUTE_INVALID", "this link was not signed by this server"))
        }
    }
}

fn forbidden(code: &'static str, message: &str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, code, message)
}

async fn carry(door: &DoorState, entry: Entry, mut request: Request) -> Result<Response, ApiError> {
    // It has been read; some SDKs repeat the API key in it. No service inside may see either.
    request.headers_mut().remove(EXECD_TOKEN);
    let (ours, rest) = split(request.uri(), entry.segments);
    let prefix = format!("{}{ours}", entry.mount);
    if entry.port == EGRESS_PORT {
        let path = rest.split('?').next().unwrap_or_default();
        return egress::face(door, &entry.access, &entry.id, request.method(), path).await;
    }
    let port = if entry.port == AGENT_PORT { Port::Agent } else { Port::Tcp(entry.port) };
    let client = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let target = Target { access: entry.access, id: entry.id, port, path_and_query: rest };
    let forwarding = Forwarding { prefix, credentials: entry.credentials, client };
    Ok(door.proxy.forward(target, request, &forwarding).await?)
}

/// The first `segments` of the path, and the raw rest with the query.
fn split(uri: &Uri, segments: usize) -> (String, String) {
    let path = uri.path();
    let at = path.match_indices('/').nth(segments).map_or(path.len(), |(at, _)| at);
    let (ours, rest) = path.split_at(at);
    let rest = if rest.is_empty() { "/" } else { rest };
    let rest = match uri.query() {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_owned(),
    };
    (ours.to_owned(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_path_stays_raw() {
        for (uri, segments, ours, rest) in [
            ("/route/a.b/80", 3, "/route/a.b/80", "/"),
            ("/route/a.b/80/", 3, "/route/a.b/80", "/"),
            ("/route/a.b/80?x=1", 3, "/route/a.b/80", "/?x=1"),
            ("/route/a.b/80/p%2Fq//r?x=%20&y", 3, "/route/a.b/80", "/p%2Fq//r?x=%20&y"),
            ("/any/path?q", 0, "", "/any/path?q"),
        ] {
            let uri: Uri = uri.parse().unwrap();
            assert_eq!(split(&uri, segments), (ours.to_owned(), rest.to_owned()), "{uri}");
        }
    }
}
