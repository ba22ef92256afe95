//! `/proxy/{port}/…`: HTTP and upgraded connections to what listens inside the sandbox.

use super::{
    ACCESS_TOKEN_HEADER,
    error::{Code, Failure},
};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, StatusCode, Uri, header, uri::PathAndQuery},
    response::{IntoResponse, Response},
};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::net::Ipv4Addr;
use tokio::net::TcpStream;
use tower::ServiceExt;

/// The port at which clients know this API; it answers itself, whatever it listens on.
const OWN_PORT: u16 = 44772;

const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

pub(super) async fn forward(
    State(own): State<Router>,
    mut request: Request,
) -> Result<Response, Failure> {
    let (port, target) = split(request.uri())?;
    *request.uri_mut() = target;
    if port == OWN_PORT {
        return Ok(own.oneshot(request).await.into_response());
    }
    send(port, request).await
}

/// The port and the rest of a `/proxy/…` address, the rest byte for byte as it came.
fn split(uri: &Uri) -> Result<(u16, Uri), Failure> {
    let rest = uri.path().strip_prefix("/proxy/").unwrap_or_default();
    let (port, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let number = port.parse().ok().filter(|number| *number != 0).ok_or_else(|| {
        Failure::invalid(format!("port: {port:?} is not a port; give a number from 1 to 65535"))
    })?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = if path.is_empty() { "/" } else { path };
    let target: PathAndQuery = format!("{path}{query}")
        .parse()
        .map_err(|error| Failure::invalid(format!("path: cannot be forwarded: {error}")))?;
    Ok((number, target.into()))
}

async fn send(port: u16, mut request: Request) -> Result<Response, Failure> {
    let unreachable = |error: &dyn std::error::Error| {
        let message = format!("port {port} in the sandbox does not answer: {error}");
        Failure::new(StatusCode::BAD_GATEWAY, Code::RuntimeError, message)
    };
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
    let stream = stream.map_err(|error| unreachable(&error))?;
    // Small writes of interactive protocols must not wait; a refusal costs latency only.
    stream.set_nodelay(true).ok();
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| unreachable(&error))?;
    tokio::spawn(connection.with_upgrades());
    let upgrade = request.headers().get(header::UPGRADE).cloned();
    let client_side = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    strip(request.headers_mut());
    request.headers_mut().remove(ACCESS_TOKEN_HEADER);
    if let Some(protocol) = upgrade {
        request.headers_mut().insert(header::UPGRADE, protocol);
        let keep = header::HeaderValue::from_static("upgrade");
        request.headers_mut().insert(header::CONNECTION, keep);
    }
    let answer = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
    Ok(answer_of(answer.map(Body::new), client_side))
}

fn answer_of(mut answer: Response, client_side: Option<OnUpgrade>) -> Response {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(client_side) = client_side
    {
        tokio::spawn(tunnel(hyper::upgrade::on(&mut answer), client_side));
        return answer;
    }
    strip(answer.headers_mut());
    answer
}

async fn tunnel(server_side: OnUpgrade, client_side: OnUpgrade) {
    if let (Ok(server), Ok(client)) = tokio::join!(server_side, client_side) {
        let (mut server, mut client) = (TokioIo::new(server), TokioIo::new(client));
        // Either side may end the conversation at any time; there is nobody to tell.
        tokio::io::copy_bidirectional(&mut server, &mut client).await.ok();
    }
}

/// Removes the headers that concern one connection only.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}
