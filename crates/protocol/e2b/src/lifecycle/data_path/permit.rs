//! Who may reach which port.

use atoll_core::{Sandbox, Timestamp};
use axum::extract::Request;
use axum::http::{HeaderName, Method, Uri};

use super::refusal::Refusal;
use super::target::Entry;
use super::{ACCESS_TOKEN, ENVD_PORT, EXECD_PORT, INTERPRETER_PORT, TRAFFIC_TOKEN};
use crate::lifecycle::form::Query;
use crate::lifecycle::marks::Marks;
use crate::lifecycle::time;
use crate::lifecycle::token::{self, Begun, Signature, SignedFile};

/// Routes of the original's agent that its own server calls.
const ENVD_INTERNAL: [&str; 7] =
    ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"];
/// Routes of our agent that our own server calls.
const AGENT_INTERNAL: &str = "/atoll";
/// Bytes of a path and of a user's name in a signed link: as much as Linux allows.
const PATH_BYTES_MAX: usize = 4096;
const USER_BYTES_MAX: usize = 256;
/// Characters of a number of seconds.
const EXPIRATION_BYTES_MAX: usize = 20;

/// A request that may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permit {
    /// It is reason enough to wake a paused sandbox.
    pub(super) wakes: bool,
    /// It shows a signature and no token: it may do what was signed, as the user that was signed.
    pub(super) signed: bool,
}

impl Permit {
    const FULL: Self = Self { wakes: true, signed: false };
}

/// Checks what a request shows against what its port asks for.
pub(super) fn check(
    sandbox: &Sandbox,
    marks: &Marks,
    entry: &Entry,
    request: &Request,
    now: Timestamp,
) -> Result<Permit, Refusal> {
    match entry.port {
        ENVD_PORT => envd(sandbox, marks, entry, request, now),
        EXECD_PORT => {
            if entry.path().starts_with(AGENT_INTERNAL) {
                return Err(Refusal::Internal);
            }
            access_token(sandbox, request).map(|()| Permit::FULL)
        }
        // Whoever runs code in there has the whole sandbox, public traffic or not.
        INTERPRETER_PORT if marks.secure && !is_open_at_interpreter(entry, request.method()) => {
            access_token(sandbox, request).map(|()| Permit::FULL)
        }
        _ => traffic(sandbox, marks, entry, request),
    }
}

/// What published SDKs ask the interpreter for without the access token. No code runs by it.
fn is_open_at_interpreter(entry: &Entry, method: &Method) -> bool {
    let path = entry.path();
    if path == "/health" {
        return [Method::GET, Method::HEAD].contains(method);
    }
    // Without dots and escapes the path can't mean anything but what it says.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_/".contains(&b);
    path.strip_prefix("/contexts")
        .is_some_and(|rest| (rest.is_empty() || rest.starts_with('/')) && rest.bytes().all(plain))
}

/// A port that is public, or else opens to the traffic token and to the access token, which
/// opens everything.
fn traffic(
    sandbox: &Sandbox,
    marks: &Marks,
    entry: &Entry,
    request: &Request,
) -> Result<Permit, Refusal> {
    let sent = header(request, TRAFFIC_TOKEN).unwrap_or_default();
    let may_pass = marks.public_traffic
        || token::same(sent, token::traffic(&sandbox.access_token))
        || access_token(sandbox, request).is_ok();
    may_pass.then_some(Permit::FULL).ok_or_else(|| Refusal::NotPublic(entry.shown.clone()))
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
        return Ok(Permit { wakes: false, signed: false });
    }
    if !marks.secure {
        return Ok(Permit::FULL);
    }
    let is_file = path == "/files" && [Method::GET, Method::HEAD, Method::POST].contains(method);
    if is_file && !request.headers().contains_key(ACCESS_TOKEN) {
        signed_file(sandbox, request, now)?;
        return Ok(Permit { wakes: true, signed: true });
    }
    access_token(sandbox, request).map(|()| Permit::FULL)
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
    let link = SignedLink::read(request.method(), request.uri())?;
    if !link.is_signed_with(&sandbox.access_token) {
        return Err(Refusal::Unauthorized("invalid signature"));
    }
    match link.expiration {
        Some(expiration) if expiration < time::seconds(now) => {
            Err(Refusal::Unauthorized("signature is already expired"))
        }
        Some(_) | None => Ok(()),
    }
}

fn header(request: &Request, name: HeaderName) -> Option<&str> {
    request.headers().get(name).map(|value| value.to_str().unwrap_or_default())
}

/// A link to a file, with a signature.
pub(super) struct SignedLink {
    signature: Signature,
    begun: Begun,
    /// Seconds since the epoch.
    expiration: Option<i64>,
}

impl SignedLink {
    /// Reads it, and sees to it that what is to be hashed is short.
    pub(super) fn read(method: &Method, uri: &Uri) -> Result<Self, Refusal> {
        let query = Query::parse(uri.query());
        let sent = query
            .get("signature")
            .ok_or(Refusal::Unauthorized("missing signature query parameter"))?;
        // A plus that was not escaped reads as a blank, which no signature has.
        let signature = Signature::parse(&sent.replace(' ', "+"))
            .ok_or(Refusal::Unauthorized("invalid signature"))?;
        let text = |name: &str, bytes_max: usize| match query.raw(name).unwrap_or_default() {
            long if long.len() > bytes_max => {
                Err(Refusal::Bad(format!("{name}: write at most {bytes_max} bytes")))
            }
            short => Ok(short),
        };
        let written = text("signature_expiration", EXPIRATION_BYTES_MAX)?;
        let written = Some(written).filter(|written| !written.is_empty());
        let expiration = written
            .map(|written| written.parse())
            .transpose()
            .map_err(|_| Refusal::Unauthorized("signature_expiration is no number"))?;
        let file = SignedFile {
            path: text("path", PATH_BYTES_MAX)?,
            operation: if *method == Method::POST { "write" } else { "read" },
            user: text("username", USER_BYTES_MAX)?,
            expiration: written,
        };
        Ok(Self { signature, begun: file.begin(), expiration })
    }

    pub(super) fn is_signed_with(&self, access_token: &str) -> bool {
        self.begun.is_signed_with(access_token, &self.signature)
    }
}
