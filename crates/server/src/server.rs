//! From a configuration to a listening server, and to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use atoll_control::{Control, Keys, Pools};
use atoll_core::{TenantId, Timestamp};
use atoll_engine::seam::WallClock;
use atoll_engine::{Clock, Engine, EngineConfig};
use atoll_opensandbox::lifecycle::{DoorConfig, DoorState, RouteSigner};
use atoll_proxy::Proxy;
use atoll_store::RedbStore;
use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::app::{self, App};
use crate::banner::banner;
use crate::config::{Config, Uplink};
use crate::data_dir::DataDir;
use crate::error::ServeError;
use crate::interpreter::Interpreter;
use crate::listener::{self, Bounds};
use crate::metrics::Metrics;
use crate::pools;
use crate::services::{self, Ground};
use crate::wiring::{self, Wired};

/// The tenant of whoever holds the key in the data folder.
const DEFAULT_TENANT: &str = "default";
/// The file of the data folder that holds the records.
const RECORDS: &str = "records.redb";

/// A server that listens; [`Server::run`] makes it answer.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    key: Option<String>,
    router: Router,
    bounds: Bounds,
    engine: Engine,
    wired: Wired,
    tasks: JoinSet<()>,
    draining: Arc<AtomicBool>,
    _data: DataDir,
}

/// Serves until `stop`; prints nothing.
///
/// # Errors
/// When it can't start.
pub async fn serve(config: Config, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
    Server::bind(config).await?.run(stop).await;
    Ok(())
}

/// Who may come in.
struct Visitors {
    keys: Keys,
    tenants: Vec<TenantId>,
    /// The key to show to the operator.
    shown: Option<String>,
}

impl Server {
    /// Locks the data folder, takes over the sandboxes in it, and listens.
    ///
    /// # Errors
    /// When any of that fails; nothing is left locked or listening then.
    pub async fn bind(config: Config) -> Result<Self, ServeError> {
        config.check()?;
        let data = DataDir::open(&config.data_dir)?;
        let visitors = visitors(&config, &data, std::env::var("ATOLL_API_KEY").ok())?;
        let signer = Arc::new(RouteSigner::new(data.signing_secret()?));
        let (listener, address) = listen(config.listen).await?;
        let interpreter = Interpreter::start(&config);
        let wired = wiring::runtime(&config, &interpreter).await?;
        let clock: Arc<dyn Clock> = Arc::new(WallClock);
        let (engine, store) = engine(&config, &data, &wired, &clock).await?;
        let control: Arc<dyn Control> = Arc::new(engine.clone());
        let keys = Arc::new(visitors.keys);
        let tenants = Arc::new(visitors.tenants);
        let now: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(move || clock.now());
        let proxy = Proxy::new(control.clone());
        let ground = Ground {
            control: control.clone(),
            pools: Arc::new(engine.clone()),
            volumes: wired.volumes.clone(),
            documents: store,
            keys: keys.clone(),
            tenants: tenants.clone(),
            proxy: proxy.clone(),
            now: now.clone(),
        };
        let e2b = services::start(&config, ground, &interpreter).await?;
        let operator = operator(&tenants);
        let pools: Arc<dyn Pools> = Arc::new(engine.clone());
        let tasks = pools::keep(&config.pool, &e2b.names(), &pools, &operator);
        let door_config = Arc::new(door_config(&config));
        let door = DoorState {
            control: control.clone(),
            keys: keys.clone(),
            proxy,
            signer,
            config: door_config,
            now,
        };
        let draining = Arc::new(AtomicBool::new(false));
        let app = App {
            control,
            engine: engine.clone(),
            keys,
            tenants,
            operator,
            templates: e2b.names(),
            pools,
            metrics: Arc::new(Metrics::default()),
            draining: draining.clone(),
        };
        let router = app::router(app, door, e2b);
        let (key, bounds) = (visitors.shown, bounds(&config));
        Ok(Self {
            listener,
            address,
            key,
            router,
            bounds,
            engine,
            wired,
            tasks,
            draining,
            _data: data,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to tell the operator: the address, the key, and lines to paste.
    pub fn banner(&self) -> String {
        banner(self.address, self.key.as_deref())
    }

    /// Answers until `stop`, then finishes what is under way: requests, removals, records, each for
    /// at most the configured time. Sandboxes go on running.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let draining = self.draining;
        let stop = async {
            stop.await;
            tracing::info!("stopping; sandboxes go on running");
            draining.store(true, Relaxed);
        };
        let patience = self.bounds.drain_time_max;
        listener::run(self.listener, self.router, self.bounds, stop).await;
        self.tasks.shutdown().await;
        if tokio::time::timeout(patience, self.engine.removals_done()).await.is_err() {
            tracing::warn!(
                "some sandboxes are still being removed; the next start goes on with it"
            );
        }
        if tokio::time::timeout(patience, self.engine.shutdown()).await.is_err() {
            tracing::warn!("the records could not be written in time; see the errors above");
        }
        self.wired.close();
    }
}

fn visitors(
    config: &Config,
    data: &DataDir,
    from_environment: Option<String>,
) -> Result<Visitors, ServeError> {
    let default = TenantId::parse(DEFAULT_TENANT).expect("the default tenant's name is an id");
    let mut visitors = Visitors { keys: Keys::new(), tenants: Vec::new(), shown: None };
    for tenant in &config.tenants {
        let id = TenantId::parse(&tenant.name).expect("the configuration was checked");
        for key in &tenant.keys {
            visitors.keys.insert(key, id.clone());
        }
        visitors.tenants.push(id);
    }
    visitors.shown = match from_environment.filter(|key| !key.is_empty()) {
        Some(key) if key.len() < 16 || !key.bytes().all(|b| b.is_ascii_graphic()) => {
            return Err(ServeError::BadKey);
        }
        Some(key) => Some(key),
        None if config.tenants.is_empty() => Some(data.api_key()?),
        None => None,
    };
    if let Some(key) = &visitors.shown {
        visitors.keys.insert(key, default.clone());
        if !visitors.tenants.contains(&default) {
            visitors.tenants.push(default);
        }
    }
    Ok(visitors)
}

/// The engine over the data folder's records.
async fn engine(
    config: &Config,
    data: &DataDir,
    wired: &Wired,
    clock: &Arc<dyn Clock>,
) -> Result<(Engine, Arc<RedbStore>), ServeError> {
    let store = RedbStore::open(&data.path().join(RECORDS)).map_err(ServeError::Store)?;
    let store = Arc::new(store);
    data.keep_private(RECORDS)?;
    let runtime = wired.runtime.clone();
    let engine = Engine::start(engine_config(config), runtime, store.clone(), clock.clone()).await;
    Ok((engine.map_err(ServeError::Engine)?, store))
}

async fn listen(wanted: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let failed = |source| ServeError::Listen { address: wanted, source };
    let listener = TcpListener::bind(wanted).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn bounds(config: &Config) -> Bounds {
    Bounds {
        connections_max: config.limits.connections_max,
        header_time_max: Duration::from_secs(config.limits.header_seconds_max),
        drain_time_max: Duration::from_secs(config.limits.drain_seconds),
    }
}

/// Who may declare pools: the default tenant, or the first when there is none of that name.
fn operator(tenants: &[TenantId]) -> TenantId {
    let default = tenants.iter().find(|tenant| tenant.as_str() == DEFAULT_TENANT);
    default.or(tenants.first()).expect("there is always a tenant").clone()
}

fn engine_config(config: &Config) -> EngineConfig {
    EngineConfig {
        actions_at_once: config.limits.actions_at_once,
        sandboxes_per_tenant_max: config.limits.sandboxes_per_tenant_max,
        snapshots_per_tenant_max: config.limits.snapshots_per_tenant_max,
        ..EngineConfig::default()
    }
}

fn door_config(config: &Config) -> DoorConfig {
    DoorConfig {
        public_host: config.public_host.clone(),
        timeout_min: Duration::from_secs(config.limits.timeout_seconds_min),
        timeout_max: Duration::from_secs(config.limits.timeout_seconds_max),
        allow_no_expiry: config.limits.allow_no_expiry,
        create_wait: Duration::from_secs(config.limits.create_wait_seconds),
        allowed_host_paths: config.runtime.allowed_host_paths.clone(),
        internet: config.runtime.network.uplink != Uplink::None,
    }
}
