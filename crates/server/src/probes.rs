//! For machines that watch the server. None of these needs a key, none tells a secret.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use atoll_control::{Filter, Paging};
use atoll_core::Phase;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;

use crate::app::App;
use crate::metrics::phase_label;

/// `/health`, `/healthz`, `/readyz`, `/version` and `/metrics`.
pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/health", get(healthy))
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/version", get(version))
        .route("/metrics", get(metrics))
        .with_state(app)
}

async fn healthy() -> Response {
    Json(json!({"status": "healthy"})).into_response()
}

/// Not ready any more from the signal to stop on, so that load balancers look elsewhere.
async fn ready(State(app): State<App>) -> Response {
    if app.draining.load(Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "draining"})))
            .into_response();
    }
    Json(json!({"status": "ready"})).into_response()
}

async fn version() -> Response {
    Json(json!({"version": env!("CARGO_PKG_VERSION")})).into_response()
}

async fn metrics(State(app): State<App>) -> Response {
    let mut phases: BTreeMap<&'static str, usize> =
        Phase::ALL.into_iter().map(|phase| (phase_label(phase), 0)).collect();
    let everything = Paging { skip: 0, take: usize::MAX };
    for tenant in app.tenants.iter() {
        // A tenant whose list fails is missing from one scrape; the next one has it again.
        let Ok(page) = app.control.list(tenant, &Filter::default(), everything).await else {
            continue;
        };
        for sandbox in page.items {
            *phases.entry(phase_label(sandbox.life.phase())).or_default() += 1;
        }
    }
    let text = app.metrics.render(&phases, &app.engine.stats(), &app.pools.pools().await);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
