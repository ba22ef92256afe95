//! Requests to one registry for one image: authentication, retries and errors in plain words.

use super::{
    challenge::Challenge,
    http::{Http, reason},
};
use crate::{Auth, Error, Limits, Reference, reference::is_loopback};
use futures_util::StreamExt;
use reqwest::{
    Method, RequestBuilder, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderValue},
};
use serde::Deserialize;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

const TOKEN_BYTES_MAX: u64 = 256 << 10;
const BACKOFF_FIRST: Duration = Duration::from_millis(200);

/// One registry, asked for one image.
pub(crate) struct Session {
    http: Arc<Http>,
    pub(super) limits: Limits,
    base: Url,
    image: String,
    repository: String,
    target: String,
    auth: Option<Auth>,
    /// What the last challenge was answered with.
    authorization: Mutex<Option<HeaderValue>>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// A failed try; transient ones are repeated.
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) transient: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, transient: false }
    }
}

impl Session {
    pub(super) fn new(
        http: Arc<Http>,
        limits: Limits,
        base: Url,
        reference: &Reference,
        auth: Option<Auth>,
    ) -> Self {
        Self {
            http,
            limits,
            base,
            image: reference.to_string(),
            repository: reference.repository().to_owned(),
            target: reference.target().to_owned(),
            auth,
            authorization: Mutex::default(),
        }
    }

    pub(crate) fn image(&self) -> &str {
        &self.image
    }

    pub(super) fn target(&self) -> &str {
        &self.target
    }

    /// Host and port, for messages.
    pub(super) fn host(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        self.base.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Reads a bounded body.
    pub(super) async fn small(
        &self,
        path: &str,
        accept: Option<&str>,
        bytes_max: u64,
    ) -> Result<Vec<u8>, Error> {
        self.retrying(|| async move {
            let response = self.try_request(&Method::GET, path, accept).await?;
            self.body(response, bytes_max).await
        })
        .await
    }

    /// Sends a request until there is a definite answer.
    pub(super) async fn request(
        &self,
        method: Method,
        path: &str,
        accept: Option<&str>,
    ) -> Result<Response, Error> {
        let method = &method;
        self.retrying(|| self.try_request(method, path, accept)).await
    }

    /// Repeats what fails for reasons that pass, with growing pauses.
    pub(super) async fn retrying<T, F>(&self, run: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut pause = BACKOFF_FIRST;
        for _ in 1..self.limits.attempts_max {
            match run().await {
                Err(Failure { transient: true, .. }) => tokio::time::sleep(pause).await,
                result => return result.map_err(|failure| failure.error),
            }
            pause *= 4;
        }
        run().await.map_err(|failure| failure.error)
    }

    /// One try, answering a challenge if there is one.
    pub(super) async fn try_request(
        &self,
        method: &Method,
        path: &str,
        accept: Option<&str>,
    ) -> Result<Response, Failure> {
        let url = self
            .base
            .join(&format!("v2/{}/{path}", self.repository))
            .map_err(|e| Error::malformed(&self.image, format!("its name makes no URL: {e}")))?;
        let request = || self.compose(method, &url, accept);
        let mut response = self.send(request()?).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            let Some(challenge) = Challenge::from_headers(response.headers()) else {
                return Err(self.unauthorized().into());
            };
            let answer = self.answer(challenge).await?;
            *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
            response = self.send(request()?).await?;
        }
        self.check(response)
    }

    fn compose(
        &self,
        method: &Method,
        url: &Url,
        accept: Option<&str>,
    ) -> Result<RequestBuilder, Error> {
        let mut request = self.client(url)?.request(method.clone(), url.clone());
        if let Some(accept) = accept {
            request = request.header(ACCEPT, accept);
        }
        let known = self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known {
            request = request.header(AUTHORIZATION, known);
        }
        Ok(request)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        request.send().await.map_err(|error| {
            let transient = !error.is_redirect() && !error.is_builder();
            Failure { error: self.unreachable(reason(&error)), transient }
        })
    }

    fn client(&self, url: &Url) -> Result<&reqwest::Client, Error> {
        self.http.client(url).map_err(|reason| self.unreachable(reason))
    }

    fn check(&self, response: Response) -> Result<Response, Failure> {
        let status = response.status();
        let error = match status {
            _ if status.is_success() => return Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.unauthorized(),
            StatusCode::NOT_FOUND => {
                Error::NotFound { image: self.image.clone(), place: self.host() }
            }
            StatusCode::TOO_MANY_REQUESTS => {
                self.unreachable("too many requests; wait, give credentials or use a mirror".into())
            }
            _ => self.unreachable(format!("it answered with HTTP status {}", status.as_u16())),
        };
        let transient = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        Err(Failure { error, transient })
    }

    async fn answer(&self, challenge: Challenge) -> Result<HeaderValue, Failure> {
        match challenge {
            Challenge::Basic => {
                let auth = self.auth.as_ref().ok_or_else(|| self.unauthorized())?;
                // The header's encoding is left to the client, by way of a request never sent.
                let request = self.client(&self.base)?.get(self.base.clone());
                let request = request.basic_auth(&auth.username, Some(&auth.password)).build();
                let header = request.ok().and_then(|r| r.headers().get(AUTHORIZATION).cloned());
                header.ok_or_else(|| self.unauthorized().into())
            }
            Challenge::Bearer { realm, service } => self.token(&realm, service.as_deref()).await,
        }
    }

    async fn token(&self, realm: &str, service: Option<&str>) -> Result<HeaderValue, Failure> {
        let strange = |what: &str| self.unreachable(format!("it {what}"));
        let mut url = Url::parse(realm)
            .map_err(|_| strange("asks for a token from something that is not a URL"))?;
        let plain_allowed = self.base.scheme() == "http";
        let local = url.host_str().is_some_and(is_loopback);
        if url.scheme() != "https" && !(url.scheme() == "http" && (plain_allowed || local)) {
            return Err(strange("asks for a token over plain http, which would leak it").into());
        }
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", service);
        }
        let scope = format!("repository:{}:pull", self.repository);
        url.query_pairs_mut().append_pair("scope", &scope);
        let mut request = self.client(&url)?.get(url);
        if let Some(auth) = &self.auth {
            request = request.basic_auth(&auth.username, Some(&auth.password));
        }
        let response = self.send(request).await?;
        // Token servers say "bad request" or "not found" to unknown users, too.
        if response.status().is_client_error() && response.status() != StatusCode::TOO_MANY_REQUESTS
        {
            return Err(self.unauthorized().into());
        }
        let bytes = self.body(self.check(response)?, TOKEN_BYTES_MAX).await?;
        let unusable = || strange("gave a token that cannot be used");
        let answer: TokenAnswer = serde_json::from_slice(&bytes).map_err(|_| unusable())?;
        let token = answer.token.or(answer.access_token).ok_or_else(unusable)?;
        let mut header =
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| unusable())?;
        header.set_sensitive(true);
        Ok(header)
    }

    async fn body(&self, response: Response, bytes_max: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let mut stream = response.bytes_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| self.broken_off(&error))?;
            if bytes.len() as u64 + chunk.len() as u64 > bytes_max {
                let (image, what) = (self.image.clone(), "its metadata in bytes");
                return Err(Error::TooLarge { image, what, limit: bytes_max }.into());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    pub(super) fn broken_off(&self, error: &reqwest::Error) -> Failure {
        let reason = format!("the download broke off: {}", reason(error));
        Failure { error: self.unreachable(reason), transient: true }
    }

    pub(super) fn unreachable(&self, reason: String) -> Error {
        Error::Unreachable { image: self.image.clone(), host: self.host(), reason }
    }

    fn unauthorized(&self) -> Error {
        let (image, host) = (self.image.clone(), self.host());
        Error::Unauthorized { image, host, with_credentials: self.auth.is_some() }
    }
}
