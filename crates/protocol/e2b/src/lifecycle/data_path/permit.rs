//! Who may reach which port.

use atoll_core::{Sandbox, Timestamp};
use axum::extract::Request;
use axum::http::{HeaderName, Method, Uri};

use super::refusal::Refusal;
use super::target::Entry;
use super::{ACCESS_TOKEN, ENVD_PORT, EXECD_PORT, TRAFFIC_TOKEN};
use crate::lifecycle::form::Query;
use crate::lifecycle::marks::Marks;
use crate::lifecycle::time;
use crate::lifecycle::token::{self, SignedFile};

/// Routes of the original's agent that its own server calls.
const ENVD_INTERNAL: [&str; 7] =
    ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"];
/// Routes of our agent that our own server calls.
const AGENT_INTERNAL: &str = "/atoll";

/// A request that may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permit {
    /// It is reason enough to wake a paused sandbox.
    pub(super) wakes: bool,
}

/// Checks what a request shows against what its port asks for.
pub(super) fn check(
    sandbox: &Sandbox,
    marks: &Marks,
    entry: &Entry,
    request: &Request,
    now: Timestamp,
) -> Result<Permit, Refusal> {
    let wakes = Permit { wakes: true };
    match entry.port {
        ENVD_PORT => envd(sandbox, marks, entry, request, now),
        EXECD_PORT => {
            if entry.path().starts_with(AGENT_INTERNAL) {
                return Err(Refusal::Internal);
            }
            access_token(sandbox, request).map(|()| wakes)
        }
        _ => {
            let sent = header(request, TRAFFIC_TOKEN).unwrap_or_default();
            if marks.public_traffic || token::same(sent, &token::traffic(&sandbox.access_token)) {
                Ok(wakes)
            } else {
                Err(Refusal::NotPublic(entry.shown.clone()))
            }
        }
    }
}

fn envd(
    sandbox: &Sandbox,
    marks: &Marks,
    entry: &Entry,
    request: &Request,
    now: Timestamp,
) -> Result<Permit, Refusal> {
    let (path, method) = (entry.path(), request.method());
    if ENVD_INTERNAL.contains(&path) {
        return Err(Refusal::Internal);
    }
    // Asking whether a sandbox runs must not make it run.
    if path == "/health" && [Method::GET, Method::HEAD].contains(method) {
        return Ok(Permit { wakes: false });
    }
    if !marks.secure {
        return Ok(Permit { wakes: true });
    }
    let is_file = path == "/files" && [Method::GET, Method::HEAD, Method::POST].contains(method);
    if is_file && !request.headers().contains_key(ACCESS_TOKEN) {
        signed_file(sandbox, request, now)?;
    } else {
        access_token(sandbox, request)?;
    }
    Ok(Permit { wakes: true })
}

fn access_token(sandbox: &Sandbox, request: &Request) -> Result<(), Refusal> {
    match header(request, ACCESS_TOKEN) {
        Some(sent) if token::same(sent, &sandbox.access_token) => Ok(()),
        Some(_) => Err(Refusal::Unauthorized("invalid access token")),
        None => Err(Refusal::Unauthorized(
            "an access token is needed: send the sandbox's envdAccessToken in the header \
             X-Access-Token",
        )),
    }
}

fn signed_file(sandbox: &Sandbox, request: &Request, now: Timestamp) -> Result<(), Refusal> {
    let link = SignedLink::read(request.method(), request.uri())
        .ok_or(Refusal::Unauthorized("missing signature query parameter"))?;
    if !link.is_signed_with(&sandbox.access_token) {
        return Err(Refusal::Unauthorized("invalid signature"));
    }
    match link.query.get("signature_expiration").map(str::parse::<i64>) {
        None => Ok(()),
        Some(Ok(expiration)) if time::seconds(now) <= expiration => Ok(()),
        Some(Ok(_)) => Err(Refusal::Unauthorized("signature is already expired")),
        Some(Err(_)) => Err(Refusal::Unauthorized("signature_expiration is no number")),
    }
}

fn header(request: &Request, name: HeaderName) -> Option<&str> {
    request.headers().get(name).map(|value| value.to_str().unwrap_or_default())
}

/// A link to a file, with a signature.
pub(super) struct SignedLink {
    query: Query,
    signature: String,
    operation: &'static str,
}

impl SignedLink {
    pub(super) fn read(method: &Method, uri: &Uri) -> Option<Self> {
        let query = Query::parse(uri.query());
        // A plus that was not escaped reads as a blank, which no signature has.
        let signature = query.get("signature")?.replace(' ', "+");
        let operation = if *method == Method::POST { "write" } else { "read" };
        Some(Self { query, signature, operation })
    }

    pub(super) fn is_signed_with(&self, access_token: &str) -> bool {
        let file = SignedFile {
            path: self.query.raw("path").unwrap_or_default(),
            operation: self.operation,
            user: self.query.raw("username").unwrap_or_default(),
            expiration: self.query.get("signature_expiration"),
        };
        token::same(&self.signature, &file.signature(access_token))
    }
}
