//! A `Control` over loopback listeners, and a server in front of the proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use atoll_control::{
    Access, BoxedIo, Control, Create, Filter, LogTail, MetadataPatch, Page, Paging, Port, Sample,
    SnapshotFilter, Usage,
};
use atoll_core::{
    Aging, Deadline, Error, Keep, Result, Sandbox, SandboxId, Snapshot, SnapshotId, TenantId,
};
use atoll_proxy::{Credentials, Forwarding, Proxy, ProxyError, Target};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::net::{TcpListener, TcpStream, UnixStream};

pub(crate) const TOKEN: &str = "0123456789abcdef";

/// Where a sandbox's ports lead.
pub(crate) enum Upstream {
    Tcp(SocketAddr),
    Socket(PathBuf),
}

/// One sandbox of one tenant; all of its ports lead to `upstream`.
pub(crate) struct World {
    upstream: Option<Upstream>,
    connects: AtomicUsize,
    pub(crate) paused: AtomicBool,
}

impl World {
    pub(crate) fn new(upstream: Option<SocketAddr>) -> Arc<Self> {
        Self::over(upstream.map(Upstream::Tcp))
    }

    pub(crate) fn over(upstream: Option<Upstream>) -> Arc<Self> {
        let (connects, paused) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { upstream, connects, paused })
    }

    pub(crate) fn connects(&self) -> usize {
        self.connects.load(Ordering::SeqCst)
    }
}

pub(crate) fn id() -> SandboxId {
    SandboxId::parse("box1").unwrap()
}

pub(crate) fn tenant() -> TenantId {
    TenantId::parse("tenant").unwrap()
}

fn unused<T>() -> Result<T> {
    Err(Error::unsupported("not part of the data path"))
}

#[async_trait]
impl Control for World {
    async fn check(&self, access: &Access, asked: &SandboxId) -> Result<()> {
        let known = match access {
            Access::Tenant(_) | Access::Signed => true,
            Access::Token(token) => token == TOKEN,
        };
        if *asked != id() || !known {
            return Err(Error::not_found("this sandbox"));
        }
        if self.paused.load(Ordering::SeqCst) {
            return Err(Error::conflict("it is paused").with_reason("SANDBOX_PAUSED"));
        }
        Ok(())
    }

    async fn connect(&self, access: &Access, asked: &SandboxId, _: Port) -> Result<BoxedIo> {
        self.check(access, asked).await?;
        let closed = || Error::unavailable("nothing listens there").with_reason("PORT_CLOSED");
        self.connects.fetch_add(1, Ordering::SeqCst);
        match &self.upstream {
            None => Err(closed()),
            Some(Upstream::Tcp(to)) => {
                Ok(Box::new(TcpStream::connect(to).await.map_err(|_| closed())?))
            }
            Some(Upstream::Socket(to)) => {
                Ok(Box::new(UnixStream::connect(to).await.map_err(|_| closed())?))
            }
        }
    }

    async fn get(&self, _: &TenantId, _: &SandboxId) -> Result<Arc<Sandbox>> {
        unused()
    }

    async fn create(&self, _: &TenantId, _: Create) -> Result<Arc<Sandbox>> {
        unused()
    }
    async fn create_and_wait(&self, _: &TenantId, _: Create, _: Duration) -> Result<Arc<Sandbox>> {
        unused()
    }
    async fn list(&self, _: &TenantId, _: &Filter, _: Paging) -> Result<Page<Arc<Sandbox>>> {
        unused()
    }
    async fn wait(&self, _: &TenantId, _: &SandboxId, _: Duration) -> Result<Arc<Sandbox>> {
        unused()
    }
    async fn pause(&self, _: &TenantId, _: &SandboxId, _: Keep, _: Aging) -> Result<Arc<Sandbox>> {
        unused()
    }
    async fn resume(
        &self,
        _: &TenantId,
        _: &SandboxId,
        _: Option<Deadline>,
    ) -> Result<Arc<Sandbox>> {
        unused()
    }
    async fn kill(&self, _: &TenantId, _: &SandboxId) -> Result<()> {
        unused()
    }
    async fn set_deadline(
        &self,
        _: &TenantId,
        _: &SandboxId,
        _: Option<Deadline>,
    ) -> Result<Arc<Sandbox>> {
        unused()
    }
    async fn extend(&self, _: &TenantId, _: &SandboxId, _: Deadline) -> Result<Arc<Sandbox>> {
        unused()
    }
    async fn patch_metadata(
        &self,
        _: &TenantId,
        _: &SandboxId,
        _: MetadataPatch,
    ) -> Result<Arc<Sandbox>> {
        unused()
    }
    async fn logs(&self, _: &TenantId, _: &SandboxId, _: usize) -> Result<LogTail> {
        unused()
    }
    async fn samples(&self, _: &TenantId, _: &SandboxId) -> Result<Vec<Sample>> {
        unused()
    }
    async fn usage(&self, _: &TenantId, _: &SandboxId) -> Result<Usage> {
        unused()
    }
    async fn snapshot(
        &self,
        _: &TenantId,
        _: &SandboxId,
        _: Option<String>,
    ) -> Result<Arc<Snapshot>> {
        unused()
    }
    async fn get_snapshot(&self, _: &TenantId, _: &SnapshotId) -> Result<Arc<Snapshot>> {
        unused()
    }
    async fn list_snapshots(&self, _: &TenantId, _: &SnapshotFilter) -> Result<Vec<Arc<Snapshot>>> {
        unused()
    }
    async fn fork(
        &self,
        _: &TenantId,
        _: &SandboxId,
        _: usize,
        _: Option<Duration>,
        _: &[&str],
    ) -> Result<Vec<Result<Arc<Sandbox>>>> {
        unused()
    }
    async fn delete_snapshot(&self, _: &TenantId, _: &SnapshotId) -> Result<()> {
        unused()
    }
}

/// The kinds of failure as statuses, so that a test sees them from outside.
fn answer(error: &ProxyError) -> Response {
    let (status, said) = match error {
        ProxyError::Refused(error) => (StatusCode::CONFLICT, error.to_string()),
        ProxyError::Closed(error) => (StatusCode::BAD_GATEWAY, error.to_string()),
        ProxyError::ConnectTimeout(_) => (StatusCode::GATEWAY_TIMEOUT, String::new()),
        ProxyError::BadAnswer(error) => (StatusCode::IM_A_TEAPOT, error.to_string()),
        ProxyError::BrokenRequest(error) => (StatusCode::BAD_REQUEST, error.to_string()),
        ProxyError::BadTarget(error) => (StatusCode::BAD_REQUEST, error.to_string()),
    };
    (status, said).into_response()
}

/// A server that carries everything to `port` of the world's sandbox, under `/p`.
pub(crate) async fn front(world: Arc<World>, access: Access, port: Port) -> SocketAddr {
    let proxy = Proxy::new(world);
    let carry = move |request: Request<Body>| async move {
        let path_and_query = request.uri().to_string();
        let target = Target { access, id: id(), port, path_and_query };
        let credentials = Credentials::Drop;
        let forwarding = Forwarding { prefix: "/p".into(), credentials, client: None };
        proxy.forward(target, request, &forwarding).await.unwrap_or_else(|error| answer(&error))
    };
    serve(Router::new().fallback(carry)).await
}

/// Serves `router` on a free port for as long as the test runs.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}
