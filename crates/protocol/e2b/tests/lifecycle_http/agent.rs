//! A `Control` whose sandboxes have something inside that answers: it tells what it was sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use atoll_control::{
    Access, BoxedIo, Control, Create, Filter, LogTail, MetadataPatch, Page, Paging, Port, Sample,
    SnapshotFilter, Usage,
};
use atoll_core::{
    Aging, Deadline, Error, Keep, Result, Sandbox, SandboxId, Snapshot, SnapshotId, TenantId,
};
use atoll_engine::Engine;
use axum::extract::Request;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A port inside on which something listens.
pub(crate) const SERVICE_PORT: u16 = 8080;
/// A port inside that changes protocols and then says everything twice.
pub(crate) const SOCKET_PORT: u16 = 9090;

/// The engine, with other ways into its sandboxes.
pub(crate) struct Inside {
    engine: Engine,
    agent: SocketAddr,
    socket: SocketAddr,
}

impl Inside {
    pub(crate) async fn new(engine: Engine) -> Self {
        let agent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let agent_address = agent.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(agent, Router::new().fallback(tell)).await });
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket_address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = socket.accept().await {
                tokio::spawn(repeat(stream));
            }
        });
        Self { engine, agent: agent_address, socket: socket_address }
    }
}

/// Says back what came in.
async fn tell(request: Request) -> Json<Value> {
    let headers: serde_json::Map<String, Value> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or("?").into()))
        .collect();
    Json(json!({
        "method": request.method().as_str(),
        "path": request.uri().to_string(),
        "headers": headers,
    }))
}

async fn repeat(mut stream: TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let answer =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: twice\r\n\r\n";
    stream.write_all(answer.as_bytes()).await.unwrap();
    let mut part = [0; 64];
    while let Ok(count @ 1..) = stream.read(&mut part).await {
        let twice = part[..count].repeat(2);
        stream.write_all(&twice).await.unwrap();
    }
}

#[async_trait]
impl Control for Inside {
    async fn connect(&self, access: &Access, id: &SandboxId, port: Port) -> Result<BoxedIo> {
        self.engine.check(access, id).await?;
        let address = match port {
            Port::Agent | Port::Tcp(SERVICE_PORT) => self.agent,
            Port::Tcp(SOCKET_PORT) => self.socket,
            Port::Tcp(_) => return Err(Error::unavailable("closed").with_reason("PORT_CLOSED")),
        };
        Ok(Box::new(TcpStream::connect(address).await.unwrap()))
    }

    async fn create(&self, tenant: &TenantId, create: Create) -> Result<Arc<Sandbox>> {
        self.engine.create(tenant, create).await
    }

    async fn create_and_wait(
        &self,
        tenant: &TenantId,
        create: Create,
        patience: Duration,
    ) -> Result<Arc<Sandbox>> {
        self.engine.create_and_wait(tenant, create, patience).await
    }

    async fn get(&self, tenant: &TenantId, id: &SandboxId) -> Result<Arc<Sandbox>> {
        self.engine.get(tenant, id).await
    }

    async fn list(&self, t: &TenantId, f: &Filter, p: Paging) -> Result<Page<Arc<Sandbox>>> {
        self.engine.list(t, f, p).await
    }

    async fn wait(&self, t: &TenantId, id: &SandboxId, p: Duration) -> Result<Arc<Sandbox>> {
        self.engine.wait(t, id, p).await
    }

    async fn pause(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        keep: Keep,
        aging: Aging,
    ) -> Result<Arc<Sandbox>> {
        self.engine.pause(tenant, id, keep, aging).await
    }

    async fn resume(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        until: Option<Deadline>,
    ) -> Result<Arc<Sandbox>> {
        self.engine.resume(tenant, id, until).await
    }

    async fn kill(&self, tenant: &TenantId, id: &SandboxId) -> Result<()> {
        self.engine.kill(tenant, id).await
    }

    async fn set_deadline(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        deadline: Option<Deadline>,
    ) -> Result<Arc<Sandbox>> {
        self.engine.set_deadline(tenant, id, deadline).await
    }

    async fn extend(&self, t: &TenantId, id: &SandboxId, d: Deadline) -> Result<Arc<Sandbox>> {
        self.engine.extend(t, id, d).await
    }

    async fn patch_metadata(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        patch: MetadataPatch,
    ) -> Result<Arc<Sandbox>> {
        self.engine.patch_metadata(tenant, id, patch).await
    }

    async fn logs(&self, tenant: &TenantId, id: &SandboxId, bytes_max: usize) -> Result<LogTail> {
        self.engine.logs(tenant, id, bytes_max).await
    }

    async fn samples(&self, tenant: &TenantId, id: &SandboxId) -> Result<Vec<Sample>> {
        self.engine.samples(tenant, id).await
    }

    async fn usage(&self, tenant: &TenantId, id: &SandboxId) -> Result<Usage> {
        self.engine.usage(tenant, id).await
    }

    async fn check(&self, access: &Access, id: &SandboxId) -> Result<()> {
        self.engine.check(access, id).await
    }

    async fn snapshot(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        name: Option<String>,
    ) -> Result<Arc<Snapshot>> {
        self.engine.snapshot(tenant, id, name).await
    }

    async fn get_snapshot(&self, tenant: &TenantId, id: &SnapshotId) -> Result<Arc<Snapshot>> {
        self.engine.get_snapshot(tenant, id).await
    }

    async fn list_snapshots(
        &self,
        tenant: &TenantId,
        filter: &SnapshotFilter,
    ) -> Result<Vec<Arc<Snapshot>>> {
        self.engine.list_snapshots(tenant, filter).await
    }

    async fn fork(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        count: usize,
        lifetime: Option<Duration>,
        forget: &[&str],
    ) -> Result<Vec<Result<Arc<Sandbox>>>> {
        self.engine.fork(tenant, id, count, lifetime, forget).await
    }

    async fn delete_snapshot(&self, tenant: &TenantId, id: &SnapshotId) -> Result<()> {
        self.engine.delete_snapshot(tenant, id).await
    }
}
