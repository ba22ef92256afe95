//! One request, from a client to a port and back.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Access, BoxedIo, Control, Port};
use atoll_core::SandboxId;
use axum::body::Body;
use bytes::Bytes;
use http::{Extensions, HeaderValue, Request, Response, StatusCode, Version};
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
/// Largest body that is held, so that its request can be sent again.
const HELD_BYTES_MAX: u64 = 64 * 1024;

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

/// An extension of a request: what the service inside sees as `Host`, instead of `localhost`.
#[derive(Clone, Debug)]
pub struct ServiceHost(pub HeaderValue);

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
        let extensions = std::mem::take(request.extensions_mut());
        let host = extensions.get::<ServiceHost>().map(|host| host.0.clone());
        let mut request = outbound(request, &target, forwarding, host)?;
        let mut response = match upgrade {
            Some((protocol, client)) => {
                headers::mark_upgrade(request.headers_mut(), protocol);
                self.upgraded(&target, request, client, extensions).await?
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
        let io = self.connect(target).await?;
        let mut link = Link::open_for_upgrade(io).await.map_err(ProxyError::BadAnswer)?;
        let mut response = link.send(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            tunnel::join(client, hyper::upgrade::on(&mut response), held);
        }
        Ok(response.map(Body::new))
    }

    /// A connection for one request.
    async fn once(
        &self,
        target: &Target,
        request: Request<Body>,
    ) -> Result<Response<Body>, ProxyError> {
        let response = self.open(target).await?.send(request).await?;
        Ok(response.map(Body::new))
    }

    /// Small requests share connections. An idle connection may have died unnoticed: a request
    /// that got not a byte back from one goes out again on a new one. Bodies that stream can't
    /// be sent twice, so they never meet an idle connection.
    async fn to_agent(
        &self,
        target: &Target,
        request: Request<Body>,
    ) -> Result<Response<Body>, ProxyError> {
        if request.body().size_hint().exact().is_none_or(|length| length > HELD_BYTES_MAX) {
            return self.once(target, request).await;
        }
        let request = held(request).await?;
        let allowed = self.control.check(&target.access, &target.id).await;
        allowed.map_err(ProxyError::connecting)?;
        if let Some(mut link) = self.pool.take(&target.id) {
            match link.send(request.clone().map(Body::from)).await {
                Ok(response) => return Ok(self.returning(target, &request, response, link)),
                Err(SendError { heard: false, .. }) => {}
                Err(broken) => return Err(broken.into()),
            }
        }
        let mut link = self.open(target).await?;
        let response = link.send(request.clone().map(Body::from)).await?;
        Ok(self.returning(target, &request, response, link))
    }

    /// The answer; its connection is used again afterwards. Not after a refusal of a request with
    /// a body: the agent may not have read it, and closes the connection then.
    fn returning(
        &self,
        target: &Target,
        request: &Request<Bytes>,
        response: Response<Incoming>,
        link: Link,
    ) -> Response<Body> {
        let status = response.status();
        if !request.body().is_empty() && (status.is_client_error() || status.is_server_error()) {
            return response.map(Body::new);
        }
        let (pool, id) = (self.pool.clone(), target.id.clone());
        response.map(|body| Body::new(Returning::new(body, pool, id, link)))
    }

    async fn open(&self, target: &Target) -> Result<Link, ProxyError> {
        Link::open(self.connect(target).await?).await.map_err(ProxyError::BadAnswer)
    }

    async fn connect(&self, target: &Target) -> Result<BoxedIo, ProxyError> {
        let connecting = self.control.connect(&target.access, &target.id, target.port);
        tokio::time::timeout(CONNECT_TIME_MAX, connecting)
            .await
            .map_err(|_| ProxyError::ConnectTimeout(CONNECT_TIME_MAX))?
            .map_err(ProxyError::connecting)
    }
}

fn outbound(
    request: Request<Body>,
    target: &Target,
    forwarding: &Forwarding,
    host: Option<HeaderValue>,
) -> Result<Request<Body>, ProxyError> {
    let (parts, body) = request.into_parts();
    let host = host.unwrap_or_else(|| match target.port {
        Port::Agent => HeaderValue::from_static("localhost"),
        Port::Tcp(port) => {
            HeaderValue::try_from(format!("localhost:{port}")).expect("a number is a header value")
        }
    });
    let mut outbound = Request::builder()
        .method(parts.method)
        .uri(&target.path_and_query)
        .body(body)
        .map_err(ProxyError::BadTarget)?;
    *outbound.headers_mut() = parts.headers;
    headers::for_sandbox(outbound.headers_mut(), forwarding, host);
    Ok(outbound)
}

/// The request with its whole body, which its head said is small.
async fn held(request: Request<Body>) -> Result<Request<Bytes>, ProxyError> {
    let (parts, body) = request.into_parts();
    let length_max = usize::try_from(HELD_BYTES_MAX).expect("64 KiB fit");
    let bytes = axum::body::to_bytes(body, length_max).await.map_err(ProxyError::BrokenRequest)?;
    Ok(Request::from_parts(parts, bytes))
}
