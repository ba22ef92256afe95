//! One request, from a client to a port and back.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Access, Control, Port};
use atoll_core::{Phase, SandboxId, TenantId};
use axum::body::Body;
use http::{Extensions, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use crate::error::ProxyError;
use crate::headers;
use crate::link::{Link, SendError};
use crate::pool::{Pool, Returning};
use crate::tunnel;

/// Longest time to open a stream into a sandbox; the runtime is on this machine.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Where a request goes.
#[derive(Clone, Debug)]
pub struct Target {
    /// On whose behalf.
    pub access: Access,
    /// To which sandbox.
    pub id: SandboxId,
    /// To which port of it.
    pub port: Port,
    /// What the service inside sees as its path, with the raw query.
    pub path_and_query: String,
}

/// What becomes of the caller's own credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// They are meant for the service inside.
    Keep,
    /// They are meant for us.
    Drop,
}

/// How a request is carried.
#[derive(Clone, Debug)]
pub struct Forwarding {
    /// Path under which the client sees the service; redirects stay below it.
    pub prefix: String,
    /// What becomes of `Authorization` and cookies.
    pub credentials: Credentials,
    /// Who asked.
    pub client: Option<IpAddr>,
}

/// Carries requests. Cheap to clone.
#[derive(Clone)]
pub struct Proxy {
    control: Arc<dyn Control>,
    pool: Pool,
}

impl Proxy {
    /// A data path over `control`.
    pub fn new(control: Arc<dyn Control>) -> Self {
        Self { control, pool: Pool::default() }
    }

    /// Remembers whose a sandbox is, so that its agent's idle connections can be used again.
    pub fn learn(&self, id: &SandboxId, tenant: &TenantId) {
        self.pool.learn(id, tenant);
    }

    /// Sends `request` to `target` and answers with what comes back.
    ///
    /// # Errors
    /// See [`ProxyError`]; nothing of an answer has been seen in any of these cases.
    pub async fn forward(
        &self,
        target: Target,
        mut request: Request<Body>,
        forwarding: &Forwarding,
    ) -> Result<Response<Body>, ProxyError> {
        let upgrade = headers::upgrade_of(request.headers())
            .zip(request.extensions_mut().remove::<OnUpgrade>());
        let held = std::mem::take(request.extensions_mut());
        let mut request = outbound(request, &target, forwarding)?;
        let mut response = match upgrade {
            Some((protocol, client)) => {
                headers::mark_upgrade(request.headers_mut(), protocol);
                self.upgraded(&target, request, client, held).await?
            }
            None if target.port == Port::Agent => self.to_agent(&target, request).await?,
            None => self.once(&target, request).await?,
        };
        let protocol = (response.status() == StatusCode::SWITCHING_PROTOCOLS)
            .then(|| headers::upgrade_of(response.headers()))
            .flatten();
        headers::for_client(response.headers_mut(), &forwarding.prefix);
        if let Some(protocol) = protocol {
            headers::mark_upgrade(response.headers_mut(), protocol);
        }
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }

    async fn upgraded(
        &self,
        target: &Target,
        request: Request<Body>,
        client: OnUpgrade,
        held: Extensions,
    ) -> Result<Response<Body>, ProxyError> {
        let mut link = self.connect(target).await?;
        let mut response = sent(link.send(request).await)?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            tunnel::join(client, hyper::upgrade::on(&mut response), held);
        }
        Ok(response.map(Body::new))
    }

    async fn once(
        &self,
        target: &Target,
        request: Request<Body>,
    ) -> Result<Response<Body>, ProxyError> {
        let mut link = self.connect(target).await?;
        let response = sent(link.send(request).await)?;
        Ok(response.map(Body::new))
    }

    /// Uses an idle connection when there is one and the caller is (still) allowed to; a request
    /// that found its connection dead goes out again on a new one.
    async fn to_agent(
        &self,
        target: &Target,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, ProxyError> {
        if let Access::Tenant(tenant) = &target.access {
            self.pool.learn(&target.id, tenant);
        }
        if self.pool.has_idle(&target.id) && self.may_reuse(target).await {
            while let Some(mut link) = self.pool.take(&target.id) {
                let copy = repeatable(&request);
                request = match link.send(request).await {
                    Ok(response) => return Ok(self.returning(target, response, link)),
                    Err(SendError::Unsent(request)) => *request,
                    Err(SendError::Broken(error)) => copy.ok_or(ProxyError::BadAnswer(error))?,
                };
            }
        }
        let mut link = self.connect(target).await?;
        let response = sent(link.send(request).await)?;
        Ok(self.returning(target, response, link))
    }

    /// The same question that `Control::connect` asks, without a connection.
    async fn may_reuse(&self, target: &Target) -> bool {
        let tenant = match &target.access {
            Access::Tenant(tenant) => Some(tenant.clone()),
            Access::Token(_) | Access::Signed => self.pool.tenant_of(&target.id),
        };
        let Some(tenant) = tenant else { return false };
        let Ok(sandbox) = self.control.get(&tenant, &target.id).await else {
            self.pool.forget(&target.id);
            return false;
        };
        let known = match &target.access {
            Access::Token(token) => same(token.as_bytes(), sandbox.access_token.as_bytes()),
            Access::Tenant(_) | Access::Signed => true,
        };
        known && sandbox.life.phase() == Phase::Running
    }

    fn returning(
        &self,
        target: &Target,
        response: Response<Incoming>,
        link: Link,
    ) -> Response<Body> {
        let (pool, id) = (self.pool.clone(), target.id.clone());
        response.map(|body| Body::new(Returning::new(body, pool, id, link)))
    }

    async fn connect(&self, target: &Target) -> Result<Link, ProxyError> {
        let connecting = self.control.connect(&target.access, &target.id, target.port);
        let io = tokio::time::timeout(CONNECT_TIME_MAX, connecting)
            .await
            .map_err(|_| ProxyError::ConnectTimeout(CONNECT_TIME_MAX))?
            .map_err(ProxyError::connecting)?;
        Link::open(io).await.map_err(ProxyError::BadAnswer)
    }
}

fn outbound(
    request: Request<Body>,
    target: &Target,
    forwarding: &Forwarding,
) -> Result<Request<Body>, ProxyError> {
    let (parts, body) = request.into_parts();
    let host = match target.port {
        Port::Agent => HeaderValue::from_static("localhost"),
        Port::Tcp(port) => {
            HeaderValue::try_from(format!("localhost:{port}")).expect("a number is a header value")
        }
    };
    let mut outbound = Request::builder()
        .method(parts.method)
        .uri(&target.path_and_query)
        .body(body)
        .map_err(ProxyError::BadTarget)?;
    *outbound.headers_mut() = parts.headers;
    headers::for_sandbox(outbound.headers_mut(), forwarding, host);
    Ok(outbound)
}

fn sent(result: Result<Response<Incoming>, SendError>) -> Result<Response<Incoming>, ProxyError> {
    result.map_err(|error| match error {
        SendError::Broken(error) => ProxyError::BadAnswer(error),
        SendError::Unsent(_) => ProxyError::Closed(atoll_core::Error::unavailable(
            "the connection was closed before the request could be sent",
        )),
    })
}

/// A copy of a request that may be sent twice: it changes nothing and has no body.
fn repeatable(request: &Request<Body>) -> Option<Request<Body>> {
    let safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    (safe && request.body().is_end_stream()).then(|| {
        let mut copy = Request::new(Body::empty());
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        copy
    })
}

/// Compares without telling by its time where the difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}
