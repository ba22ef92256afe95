//! What a client sees. Absent members are left out, because null breaks the Python SDK.

use std::collections::BTreeMap;

use atoll_core::{Phase, Sandbox, Snapshot, SnapshotState, Source};
use serde_json::{Map, Value, json};

use super::time;

/// The contract's state for a phase, and the reason shown with it.
pub(crate) fn state(phase: Phase) -> (&'static str, &'static str) {
    match phase {
        Phase::Queued | Phase::Starting => ("Pending", "CONTAINER_STARTING"),
        Phase::Running => ("Running", "CONTAINER_RUNNING"),
        Phase::Pausing => ("Pausing", "CONTAINER_PAUSING"),
        Phase::Paused => ("Paused", "CONTAINER_PAUSED"),
        Phase::Resuming => ("Resuming", "CONTAINER_RESUMING"),
        Phase::Stopping => ("Stopping", "CONTAINER_STOPPING"),
        Phase::Ended | Phase::Gone => ("Terminated", "CONTAINER_EXITED"),
        Phase::Failed => ("Failed", "CONTAINER_EXITED_ERROR"),
    }
}

/// The contract's state for a snapshot, and the reason shown with it.
pub(crate) fn snapshot_state(state: &SnapshotState) -> (&'static str, &'static str) {
    match state {
        SnapshotState::Creating => ("Creating", "snapshot_accepted"),
        SnapshotState::Ready => ("Ready", "snapshot_runtime_ready"),
        SnapshotState::Failed(_) => ("Failed", "snapshot_runtime_failed"),
        SnapshotState::Deleting => ("Deleting", "snapshot_deleting"),
    }
}

/// The answer to a creation.
pub(crate) fn created(sandbox: &Sandbox) -> Value {
    Value::Object(common(sandbox))
}

/// A sandbox as `GET` shows it.
pub fn sandbox(sandbox: &Sandbox) -> Value {
    let mut object = common(sandbox);
    match &sandbox.spec.source {
        Source::Image(image) => object.insert("image".into(), json!({"uri": image.reference})),
        Source::Snapshot(id) => object.insert("snapshotId".into(), id.as_str().into()),
    };
    object.into()
}

fn common(sandbox: &Sandbox) -> Map<String, Value> {
    let spec = &sandbox.spec;
    let mut object = Map::new();
    object.insert("id".into(), sandbox.id.as_str().into());
    object.insert("status".into(), status(sandbox));
    object.insert("entrypoint".into(), spec.entrypoint.clone().into());
    object.insert("createdAt".into(), time::text(sandbox.created_at).into());
    insert_map(&mut object, "metadata", &spec.metadata);
    insert_map(&mut object, "extensions", &spec.extensions);
    if let Some(platform) = &spec.platform {
        object.insert("platform".into(), json!({"os": platform.os, "arch": platform.arch}));
    }
    if let Some(deadline) = sandbox.life.deadline() {
        object.insert("expiresAt".into(), time::text(deadline.at).into());
    }
    object
}

fn status(sandbox: &Sandbox) -> Value {
    let (state, reason) = state(sandbox.life.phase());
    let mut status = Map::new();
    status.insert("state".into(), state.into());
    status.insert("lastTransitionAt".into(), time::text(sandbox.life.changed_at()).into());
    match sandbox.life.diagnostic() {
        Some(diagnostic) => {
            let message = format!("{}; {}", diagnostic.message, diagnostic.recommendation);
            status.insert("reason".into(), diagnostic.reason.as_str().into());
            status.insert("message".into(), message.into());
        }
        None => {
            status.insert("reason".into(), reason.into());
            if let Some(entry) = sandbox.life.timeline().entries().last() {
                status.insert("message".into(), entry.message.as_str().into());
            }
        }
    }
    status.into()
}

fn insert_map(object: &mut Map<String, Value>, name: &str, map: &BTreeMap<String, String>) {
    if !map.is_empty() {
        object.insert(name.into(), json!(map));
    }
}

/// The story of a sandbox, oldest first, in the contract's words for its phases.
pub fn timeline(sandbox: &Sandbox) -> Value {
    let entries = sandbox.life.timeline().entries().iter();
    entries
        .map(|entry| {
            let (state, _) = state(entry.phase);
            json!({"at": time::text(entry.at), "phase": state, "message": entry.message})
        })
        .collect()
}

/// A snapshot.
pub(crate) fn snapshot(snapshot: &Snapshot) -> Value {
    let (state, reason) = snapshot_state(&snapshot.state);
    let mut status = json!({
        "state": state,
        "reason": reason,
        "lastTransitionAt": time::text(snapshot.changed_at),
    });
    if let SnapshotState::Failed(why) = &snapshot.state {
        status["message"] = why.as_str().into();
    }
    let mut object = json!({
        "id": snapshot.id.as_str(),
        "sandboxId": snapshot.sandbox.as_str(),
        "status": status,
        "createdAt": time::text(snapshot.created_at),
    });
    if let Some(name) = &snapshot.name {
        object["name"] = name.as_str().into();
    }
    object
}

/// One page of a list.
pub(crate) fn page(items: Vec<Value>, page: usize, page_size: usize, total: usize) -> Value {
    let pages = total.div_ceil(page_size);
    json!({
        "items": items,
        "pagination": {
            "page": page,
            "pageSize": page_size,
            "totalItems": total,
            "totalPages": pages,
            "hasNextPage": page < pages,
        },
    })
}
