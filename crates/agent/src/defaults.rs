//! What commands start from: who they are, where, with which variables. A claim gives it anew.

use crate::{account, config::Defaults};
use anyhow::{Context, Result};
use atoll_guest::{Guest, accounts::Accounts, settings::Values};
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// As much as a launcher may hand over at the start.
const BODY_BYTES_MAX: usize = 8 << 20;
/// The header with the key.
const KEY_HEADER: &str = "atoll-key";
/// Says that the new defaults are somebody else's.
const CLAIM_HEADER: &str = "atoll-claim";

/// Turns names into ids, and makes the user and the directory that somebody chose. Blocks.
pub(crate) fn values(defaults: Defaults) -> Result<Values> {
    let Defaults { env, cwd, user, make } = defaults;
    if make && let Some(name) = &user {
        account::ensure(Path::new("/"), name)
            .with_context(|| format!("cannot make user {name}"))?;
    }
    let user = user.as_deref().map(|user| Accounts::load().resolve(user)).transpose()?;
    let workdir = cwd.map(PathBuf::from);
    if make && let Some(dir) = workdir.as_deref().filter(|dir| !dir.exists()) {
        // One that can't be made is reported by the first command that wants it.
        let owner = user.as_ref().map_or((0, 0), |user| (user.uid, user.gid));
        fs::create_dir_all(dir).and_then(|()| chown(dir, Some(owner.0), Some(owner.1))).ok();
    }
    // Commands that start where the agent is start faster. A directory that does not exist is
    // reported by the first command that wants it.
    std::env::set_current_dir(workdir.as_deref().unwrap_or(Path::new("/"))).ok();
    Ok(Values { env, user, workdir })
}

struct Shared {
    key: String,
    guest: Arc<Guest>,
    /// Somebody else than the sandbox's maker has given it defaults.
    claimed: AtomicBool,
}

/// `POST /atoll/configure`: other defaults for everything that starts from now on. The key keeps
/// out whoever reaches the agent through the server's doors, and everybody inside.
/// `GET /atoll/untouched`: refused once somebody has claimed the sandbox so.
pub(crate) fn router(key: String, guest: &Arc<Guest>) -> Router {
    let claimed = AtomicBool::new(false);
    let shared = Arc::new(Shared { key, guest: Arc::clone(guest), claimed });
    Router::new()
        .route("/atoll/configure", post(configure))
        .route("/atoll/untouched", get(untouched))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}

async fn configure(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let said = headers.get(KEY_HEADER).map_or(&b""[..], |value| value.as_bytes());
    if shared.key.is_empty() || !is_same(said, shared.key.as_bytes()) {
        return (StatusCode::NOT_FOUND, String::new());
    }
    if headers.contains_key(CLAIM_HEADER) {
        shared.claimed.store(true, Ordering::Release);
    }
    let defaults: Defaults = match serde_json::from_slice(&body) {
        Ok(defaults) => defaults,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()),
    };
    // A few small files, and nobody else to wait for them: a thread of its own would take longer
    // to start than this takes.
    match values(defaults).map(|values| shared.guest.settings().replace(values)) {
        Ok(()) => (StatusCode::OK, String::new()),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{error:#}")),
    }
}

async fn untouched(State(shared): State<Arc<Shared>>) -> StatusCode {
    match shared.claimed.load(Ordering::Acquire) {
        true => StatusCode::CONFLICT,
        false => StatusCode::OK,
    }
}

/// How long this takes tells nothing but the length.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differs = one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && differs == 0
}
