//! What every route shares, and how the doors come together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use atoll_control::{Control, Keys, Pools, Templates};
use atoll_core::TenantId;
use atoll_engine::Engine;
use atoll_opensandbox::lifecycle::{self, DoorState};
use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};

use crate::layers;
use crate::metrics::Metrics;
use crate::services::E2b;
use crate::{native, probes};

/// Shared by the server's own routes and layers.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) control: Arc<dyn Control>,
    pub(crate) engine: Engine,
    pub(crate) keys: Arc<Keys>,
    pub(crate) tenants: Arc<Vec<TenantId>>,
    /// The tenant who may declare pools.
    pub(crate) operator: TenantId,
    pub(crate) templates: Arc<dyn Templates>,
    pub(crate) pools: Arc<dyn Pools>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) draining: Arc<AtomicBool>,
}

/// The whole URL space behind one listener.
pub(crate) fn router(app: App, door: DoorState, e2b: E2b) -> Router {
    let metrics = app.metrics.clone();
    Router::new()
        .merge(lifecycle::router(door.clone()))
        .merge(atoll_e2b::lifecycle::router(e2b.door.clone()))
        .merge(atoll_e2b::lifecycle::template_router(&e2b.door, e2b.templates))
        .merge(native::router(app.clone()))
        .merge(probes::router(app))
        .fallback(layers::no_route)
        .method_not_allowed_fallback(layers::wrong_method)
        // From here on, later means further outside.
        .layer(from_fn_with_state(door, lifecycle::ingress))
        .layer(from_fn_with_state(e2b.door.clone(), atoll_e2b::lifecycle::data_path))
        .layer(from_fn_with_state(e2b.door, layers::cors))
        .layer(from_fn_with_state(metrics.clone(), layers::catch_panic))
        .layer(from_fn_with_state(metrics, layers::count))
        .layer(from_fn(layers::request_id))
        .layer(from_fn(layers::leftover))
}
