//! What the sandbox tells about itself: whether it lives, its variables, its resources.

use atoll_guest::{Guest, environment::FILE_VARIABLE};
use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc, time::UNIX_EPOCH};

const MIB: u64 = 1 << 20;

/// The routes about the sandbox as a whole.
pub(super) fn router() -> Router<Arc<Guest>> {
    Router::new()
        .route("/health", get(async || StatusCode::NO_CONTENT))
        .route("/envs", get(envs))
        .route("/metrics", get(metrics))
}

/// The sandbox's own variables; where other variables may be appended is no business of clients.
async fn envs(State(guest): State<Arc<Guest>>) -> Json<BTreeMap<String, String>> {
    let mut variables = guest.environment().variables().clone();
    variables.remove(FILE_VARIABLE);
    Json(variables)
}

#[derive(Serialize)]
struct Metrics {
    ts: u64,
    cpu_count: u64,
    cpu_used_pct: f64,
    mem_total: u64,
    mem_used: u64,
    mem_cache: u64,
    mem_total_mib: u64,
    mem_used_mib: u64,
    disk_used: u64,
    disk_total: u64,
}

async fn metrics(State(guest): State<Arc<Guest>>) -> Json<Metrics> {
    let sample = guest.metrics().await;
    Json(Metrics {
        ts: sample.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        // Half a processor is still one to whoever counts them.
        cpu_count: sample.cpu_count.ceil() as u64,
        cpu_used_pct: (sample.cpu_used_percent * 100.0).round() / 100.0,
        mem_total: sample.memory_total,
        mem_used: sample.memory_used,
        mem_cache: sample.memory_cache,
        mem_total_mib: sample.memory_total / MIB,
        mem_used_mib: sample.memory_used / MIB,
        disk_used: sample.disk_used,
        disk_total: sample.disk_total,
    })
}
