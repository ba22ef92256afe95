//! What every route shares, and how the doors come together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use atoll_control::{Control, Keys};
use atoll_core::TenantId;
use atoll_engine::Engine;
use atoll_opensandbox::lifecycle::{self, DoorState};
use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};

use crate::layers;
use crate::metrics::Metrics;
use crate::{native, probes};

/// Shared by the server's own routes and layers.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) control: Arc<dyn Control>,
    pub(crate) engine: Engine,
    pub(crate) keys: Arc<Keys>,
    pub(crate) tenants: Arc<Vec<TenantId>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) draining: Arc<AtomicBool>,
}

/// The whole URL space behind one listener.
pub(crate) fn router(app: App, door: DoorState) -> Router {
    let metrics = app.metrics.clone();
    Router::new()
        .merge(lifecycle::router(door.clone()))
        .merge(native::router(app.clone()))
        .merge(probes::router(app))
        .fallback(layers::no_route)
        .method_not_allowed_fallback(layers::wrong_method)
        // From here on, later means further outside.
        .layer(from_fn_with_state(door, lifecycle::ingress))
        .layer(from_fn(layers::cors))
        .layer(from_fn_with_state(metrics.clone(), layers::catch_panic))
        .layer(from_fn_with_state(metrics, layers::count))
        .layer(from_fn(layers::request_id))
        .layer(from_fn(layers::leftover))
}
