//! Snapshots, and sandboxes made from a running one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use atoll_control::SnapshotFilter;
use atoll_core::{Phase, Snapshot, SnapshotState, TenantId};
use atoll_template::SNAPSHOT_PREFIX;
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::create::{Unfinished, usable};
use super::cursor::{self, Cursor};
use super::error::ApiError;
use super::extract::{Body, PathSandbox, sandbox_id};
use super::form::Query;
use super::list::limit;
use super::marks::OF_ONE_CREATION;
use super::sandboxes::find;
use super::state::DoorState;
use super::wire::{Continue, NewSnapshot};
use super::{convert, render};

const FORK_TIMEOUT: i64 = 15;
const FORKS_MAX: i64 = 100;
const NAME_BYTES_MAX: usize = 128;
/// Waits between looks at a snapshot that is being taken.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const WAIT_HEADER: &str = "x-e2b-kruise-snapshot-wait-success-seconds";
const REFUSED_HEADERS: [&str; 3] = [
    "x-e2b-kruise-snapshot-keep-running",
    "x-e2b-kruise-snapshot-ttl",
    "x-e2b-kruise-snapshot-persistent-contents",
];

/// `POST /sandboxes/{id}/snapshots`. Answers when sandboxes can be made from it.
pub(super) async fn create(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let wanted = NewSnapshot::read(&body.or_empty())?;
    if wanted.memory == Some(true) {
        let reason = "snapshots here keep files; leave it out or send false";
        let error = ApiError::unsupported("memory", reason);
        return Err(error.with_code("sandbox_memory_override_disabled"));
    }
    let patience = patience(&door, &headers)?;
    let name = wanted.name.map(|name| stored_name(&tenant, &name)).transpose()?;
    let source = find(&door, &tenant, &id).await?;
    let snapshot = door.control.snapshot(&tenant, &id, name).await?;
    door.templates.remember_snapshot(&tenant, &snapshot.id, &source.spec).await?;
    let taken = tokio::time::timeout(patience, taken(&door, &tenant, snapshot)).await;
    let snapshot = taken.map_err(|_| {
        let message = "the snapshot is still being taken; look for it in GET /snapshots";
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, message).not_again()
    })??;
    let shown = info(&tenant, &snapshot, true);
    Ok((StatusCode::CREATED, Json(shown)).into_response())
}

fn patience(door: &DoorState, headers: &HeaderMap) -> Result<Duration, ApiError> {
    let trivial = ["", "true"];
    for name in REFUSED_HEADERS {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        let is_default =
            name.ends_with("keep-running") && value.is_some_and(|v| trivial.contains(&v));
        if value.is_some() && !is_default {
            let reason = "snapshots keep all files until they are deleted, and sandboxes go on \
                          running; leave it out";
            return Err(ApiError::unsupported(name, reason));
        }
    }
    let Some(value) = headers.get(WAIT_HEADER) else { return Ok(door.config.create_wait) };
    let seconds = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    seconds.filter(|seconds| (1..=3600).contains(seconds)).map(Duration::from_secs).ok_or_else(
        || ApiError::invalid(WAIT_HEADER, "write a whole number of seconds from 1 to 3600"),
    )
}

async fn taken(
    door: &DoorState,
    tenant: &TenantId,
    mut snapshot: Arc<Snapshot>,
) -> Result<Arc<Snapshot>, ApiError> {
    loop {
        match &snapshot.state {
            SnapshotState::Ready => return Ok(snapshot),
            SnapshotState::Failed(why) => {
                let message = format!("the snapshot could not be taken: {why}");
                return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).not_again());
            }
            SnapshotState::Deleting => {
                return Err(ApiError::conflict("the snapshot was deleted while it was taken"));
            }
            SnapshotState::Creating => tokio::time::sleep(LOOK_EVERY).await,
        }
        snapshot = door.control.get_snapshot(tenant, &snapshot.id).await?;
    }
}

/// `[team/]name[:tag]` as it is kept: without the team, and without the default tag.
fn stored_name(tenant: &TenantId, text: &str) -> Result<String, ApiError> {
    let lower = text.trim().to_lowercase();
    let (team, rest) = match lower.split_once('/') {
        Some((team, rest)) => (Some(team), rest),
        None => (None, lower.as_str()),
    };
    let (name, tag) = rest.split_once(':').unwrap_or((rest, "default"));
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
    let fits = !name.is_empty() && name.bytes().all(plain);
    let tag_fits = !tag.is_empty() && tag.bytes().all(|b| plain(b) || b == b'.');
    if !fits || !tag_fits || rest.len() > NAME_BYTES_MAX {
        let problem = format!(
            "write at most {NAME_BYTES_MAX} of a-z, 0-9, '-' and '_', with :tag after it if need be"
        );
        return Err(ApiError::invalid("name", problem));
    }
    if team.is_some_and(|team| team != tenant.as_str()) {
        let problem = format!("names of yours begin with {tenant}/ or with no team at all");
        return Err(ApiError::invalid("name", problem));
    }
    Ok(if tag == "default" { name.to_owned() } else { format!("{name}:{tag}") })
}

/// A snapshot as clients see it. Its name leads to the newest of that name; older ones go by id.
fn info(tenant: &TenantId, snapshot: &Snapshot, is_newest: bool) -> Value {
    let full = snapshot.name.as_deref().map(|name| {
        let tag = if name.contains(':') { "" } else { ":default" };
        format!("{tenant}/{name}{tag}")
    });
    let by_id = format!("{}:default", snapshot.id);
    let id = full.clone().filter(|_| is_newest).unwrap_or(by_id);
    // The id carries the tag, names are without.
    let tagless = |full: String| full.split(':').next().unwrap_or_default().to_owned();
    let names: Vec<String> = full.into_iter().map(tagless).collect();
    json!({"snapshotID": id, "names": names})
}

/// `GET /snapshots`.
pub(super) async fn list(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    query: Query,
) -> Result<Response, ApiError> {
    let limit = limit(&query)?;
    let cursor = query.get("nextToken").map(|text| Cursor::parse(text, false)).transpose()?;
    let name = query.get("name").map(|name| stored_name(&tenant, name)).transpose()?;
    let sandbox = match query.get("sandboxID").map(sandbox_id) {
        // What can't be an id was never a source.
        Some(None) => return Ok(Json(json!([])).into_response()),
        Some(Some(id)) => Some(id),
        None => None,
    };
    let all = door.control.list_snapshots(&tenant, &SnapshotFilter::default()).await?;
    let mut all: Vec<_> = all.into_iter().filter(|snapshot| is_shown(snapshot)).collect();
    all.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
    let mut names = HashSet::new();
    let mut shown = Vec::new();
    for snapshot in &all {
        let is_newest = snapshot.name.as_ref().is_some_and(|name| names.insert(name.clone()));
        let wanted = sandbox.as_ref().is_none_or(|id| *id == snapshot.sandbox)
            && name.as_ref().is_none_or(|name| Some(name) == snapshot.name.as_ref())
            && cursor
                .as_ref()
                .is_none_or(|c| c.is_before(snapshot.created_at, snapshot.id.as_str()));
        if wanted {
            shown.push((snapshot, info(&tenant, snapshot, is_newest)));
        }
    }
    let (shown, headers) = cursor::page(shown, limit, |(snapshot, _)| Cursor {
        at: snapshot.created_at,
        id: snapshot.id.as_str().to_owned(),
        oldest_first: false,
    });
    let items: Value = shown.into_iter().map(|(_, info)| info).collect();
    Ok((headers, Json(items)).into_response())
}

/// What template builds keep is theirs.
fn is_shown(snapshot: &Snapshot) -> bool {
    let of_build = snapshot.name.as_ref().is_some_and(|name| name.starts_with(SNAPSHOT_PREFIX));
    snapshot.state == SnapshotState::Ready && !of_build
}

/// `POST /sandboxes/{id}/fork`.
pub(super) async fn fork(
    State(door): State<DoorState>,
    Extension(tenant): Extension<TenantId>,
    PathSandbox(id): PathSandbox,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let wanted = Continue::read(&body.or_empty())?;
    let lifetime = convert::timeout(&door.config, wanted.timeout_seconds.unwrap_or(FORK_TIMEOUT))?;
    let count = wanted.count.unwrap_or(1);
    if !(1..=FORKS_MAX).contains(&count) {
        return Err(ApiError::invalid("count", format!("must be from 1 to {FORKS_MAX}")));
    }
    let source = find(&door, &tenant, &id).await?;
    if source.life.phase() != Phase::Running {
        let message = format!("sandbox {id} is paused; only a running one can be forked");
        return Err(ApiError::conflict(message));
    }
    let count = usize::try_from(count).unwrap_or(1);
    let made = door.control.fork(&tenant, &id, count, Some(lifetime), &OF_ONE_CREATION).await?;
    let domain = render::domain(&door.config, &headers);
    // All are guarded before any is waited for: a client that leaves leaves none behind.
    let guarded = made
        .into_iter()
        .map(|made| made.map(|sandbox| (Unfinished::new(&door, &tenant, &sandbox.id), sandbox)));
    let waiting = guarded.collect::<Vec<_>>().into_iter().map(|made| async {
        let (unfinished, sandbox) = made?;
        let patience = convert::patience(door.config.create_wait, &sandbox.spec);
        let waited = door.control.wait(&tenant, &sandbox.id, patience).await?;
        let sandbox = usable(waited)?;
        unfinished.finish();
        Ok::<_, ApiError>(render::sandbox(&sandbox, domain.as_deref()))
    });
    let results: Value = join_all(waiting)
        .await
        .into_iter()
        .map(|result| match result {
            Ok(sandbox) => json!({"sandbox": sandbox}),
            Err(error) => json!({"error": error.body()}),
        })
        .collect();
    Ok((StatusCode::CREATED, Json(results)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_without_what_goes_without_saying() {
        let tenant = TenantId::parse("acme").unwrap();
        for (given, kept) in
            [("snap", "snap"), ("Acme/Snap:default", "snap"), ("snap:v1.2", "snap:v1.2")]
        {
            assert_eq!(stored_name(&tenant, given).unwrap(), kept);
        }
        for bad in ["", "a b", "other/snap", "snap:", "a/b/c", ":x", "../x"] {
            assert!(stored_name(&tenant, bad).is_err(), "{bad:?}");
        }
    }
}
