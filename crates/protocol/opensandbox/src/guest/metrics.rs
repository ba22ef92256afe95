use super::{
    events,
    wire::{Metrics, unix_ms},
};
use atoll_guest::Guest;
use axum::{Json, body::Body, extract::State, response::Response};
use futures_util::stream;
use std::{sync::Arc, time::Duration};
use tokio::time::{MissedTickBehavior, interval};

const WATCH_EVERY: Duration = Duration::from_secs(1);
const MIB: f64 = 1024.0 * 1024.0;

async fn measure(guest: &Guest) -> Metrics {
    let sample = guest.metrics().await;
    Metrics {
        cpu_count: sample.cpu_count,
        cpu_used_pct: sample.cpu_used_percent,
        mem_total_mib: sample.memory_total as f64 / MIB,
        mem_used_mib: sample.memory_used as f64 / MIB,
        timestamp: unix_ms(sample.at),
    }
}

pub(super) async fn now(State(guest): State<Arc<Guest>>) -> Json<Metrics> {
    Json(measure(&guest).await)
}

/// One measurement a second, one JSON object a line, until the client leaves.
pub(super) async fn watch(State(guest): State<Arc<Guest>>) -> Response {
    let mut ticks = interval(WATCH_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let lines = stream::unfold((guest, ticks), |(guest, mut ticks)| async move {
        ticks.tick().await;
        let mut line = serde_json::to_string(&measure(&guest).await).ok()?;
        line.push('\n');
        Some((Ok::<_, std::convert::Infallible>(line), (guest, ticks)))
    });
    events::response(Body::from_stream(lines))
}
