//! A small client of the OpenSandbox wire and of the few routes that are Atoll's own.

mod command;
mod files;
#[cfg(test)]
mod tests;
mod wire;

use std::path::Path;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use command::{Command, Outcome, Output};
pub(crate) use wire::{Detail, NewSandbox, PoolRow, Sandbox};
use wire::{Endpoint, Page, PoolPage, Refusal};

use crate::error::Error;

/// The port that every sandbox's agent answers on.
const AGENT_PORT: u16 = 44_772;
const KEY_HEADER: &str = "OPEN-SANDBOX-API-KEY";
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Longest answer that is read whole.
const BODY_BYTES_MAX: usize = 32 << 20;
/// The server's own limits.
const LOG_BYTES_MAX: usize = 4 << 20;
const PAGE_SIZE: usize = 200;
const POOLS: &str = "/atoll/v1/pools";

/// Speaks to one server as one tenant.
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    key: Option<String>,
}

impl Client {
    /// A client of `url`; `key` comes from the caller, else from the server's own data folder.
    pub(crate) fn new(url: &str, key: Option<String>, data_dir: &Path) -> Result<Self, Error> {
        let url = url.trim_end_matches('/').to_owned();
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Error::Usage(format!(
                "--url: {url:?} must begin with http:// or https://"
            )));
        }
        // An error only says that a provider is there already.
        rustls::crypto::ring::default_provider().install_default().ok();
        let http = reqwest::Client::builder().connect_timeout(CONNECT_WITHIN).build();
        let http = http.map_err(|source| Error::Unreachable { url: url.clone(), source })?;
        let file = data_dir.join("api-key");
        let key = key.or_else(|| std::fs::read_to_string(file).ok().map(|k| k.trim().to_owned()));
        Ok(Self { http, url, key })
    }

    /// Asks for a sandbox.
    pub(crate) async fn create(&self, wish: &NewSandbox) -> Result<Sandbox, Error> {
        let request = self.request(Method::POST, "/v1/sandboxes").json(wish);
        self.read(request, "POST /v1/sandboxes").await
    }

    /// One sandbox.
    pub(crate) async fn get(&self, id: &str) -> Result<Sandbox, Error> {
        let path = sandbox_path(id, "")?;
        self.read(self.request(Method::GET, &path), &format!("GET {path}")).await
    }

    /// One sandbox as the server sent it.
    pub(crate) async fn get_json(&self, id: &str) -> Result<Value, Error> {
        let path = sandbox_path(id, "")?;
        self.read(self.request(Method::GET, &path), &format!("GET {path}")).await
    }

    /// Its timeline and diagnostic.
    pub(crate) async fn detail<T: DeserializeOwned>(&self, id: &str) -> Result<T, Error> {
        let path = format!("/atoll{}", sandbox_path(id, "")?);
        self.read(self.request(Method::GET, &path), &format!("GET {path}")).await
    }

    /// All sandboxes that match, newest first.
    pub(crate) async fn list(
        &self,
        states: &[String],
        labels: &[(String, String)],
    ) -> Result<Vec<Value>, Error> {
        let mut found = Vec::new();
        for page in 1.. {
            let mut query: Vec<(&str, String)> =
                vec![("page", page.to_string()), ("pageSize", PAGE_SIZE.to_string())];
            query.extend(states.iter().map(|state| ("state", state.clone())));
            if !labels.is_empty() {
                query.push(("metadata", wire::form(labels)));
            }
            let path = format!("/v1/sandboxes?{}", wire::form(&query));
            let answer: Page =
                self.read(self.request(Method::GET, &path), "GET /v1/sandboxes").await?;
            found.extend(answer.items);
            if !answer.pagination.has_next_page {
                break;
            }
        }
        Ok(found)
    }

    /// Freezes or thaws; `verb` is `pause` or `resume`.
    pub(crate) async fn change(&self, id: &str, verb: &str) -> Result<(), Error> {
        let path = sandbox_path(id, &format!("/{verb}"))?;
        self.send(self.request(Method::POST, &path)).await.map(|_| ())
    }

    /// Removes a sandbox.
    pub(crate) async fn remove(&self, id: &str) -> Result<(), Error> {
        let path = sandbox_path(id, "")?;
        self.send(self.request(Method::DELETE, &path)).await.map(|_| ())
    }

    /// What its entrypoint printed, as far as it is kept.
    pub(crate) async fn logs(&self, id: &str) -> Result<Vec<u8>, Error> {
        let path = format!("/atoll{}?tail={LOG_BYTES_MAX}", sandbox_path(id, "/logs")?);
        let response = self.send(self.request(Method::GET, &path)).await?;
        read_bounded(response).await.map_err(|_| Error::CutOff)
    }

    /// Declares or changes a warm pool; answers with it.
    pub(crate) async fn set_pool(
        &self,
        name: &str,
        template: &str,
        size: u64,
    ) -> Result<Value, Error> {
        let path = pool_path(name)?;
        let body = serde_json::json!({"template": template, "size": size});
        let request = self.request(Method::PUT, &path).json(&body);
        self.read(request, &format!("PUT {path}")).await
    }

    /// All warm pools.
    pub(crate) async fn pools(&self) -> Result<Vec<Value>, Error> {
        let request = self.request(Method::GET, POOLS);
        let page: PoolPage = self.read(request, &format!("GET {POOLS}")).await?;
        Ok(page.pools)
    }

    /// Forgets a warm pool.
    pub(crate) async fn remove_pool(&self, name: &str) -> Result<(), Error> {
        let path = pool_path(name)?;
        self.send(self.request(Method::DELETE, &path)).await.map(|_| ())
    }

    /// The base URL of a sandbox's agent, through the server.
    async fn agent(&self, id: &str) -> Result<String, Error> {
        let path = sandbox_path(id, &format!("/endpoints/{AGENT_PORT}?use_server_proxy=true"))?;
        let request = self.request(Method::GET, &path);
        let found: Endpoint = self.read(request, &format!("GET {path}")).await?;
        let scheme = self.url.split("://").next().unwrap_or("http");
        Ok(format!("{scheme}://{}", found.endpoint))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.request_url(method, format!("{}{path}", self.url))
    }

    fn request_url(&self, method: Method, url: String) -> RequestBuilder {
        let request = self.http.request(method, url);
        match &self.key {
            Some(key) => request.header(KEY_HEADER, key),
            None => request,
        }
    }

    /// Sends and wants a success.
    async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = request.send().await;
        let response =
            response.map_err(|source| Error::Unreachable { url: self.url.clone(), source })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let body = read_bounded(response).await.unwrap_or_default();
        Err(Refusal::parse(status, &body))
    }

    /// Sends, wants a success and reads its JSON.
    async fn read<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        what: &str,
    ) -> Result<T, Error> {
        let response = self.send(request).await?;
        let garbled = |why: String| Error::Garbled { request: what.to_owned(), why };
        let body = read_bounded(response).await.map_err(|error| garbled(error.to_string()))?;
        serde_json::from_slice(&body).map_err(|error| garbled(error.to_string()))
    }
}

/// The path of one pool. A name that is none must not become another path.
fn pool_path(name: &str) -> Result<String, Error> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if name.bytes().all(plain) && name.bytes().any(|b| b != b'.') {
        return Ok(format!("{POOLS}/{name}"));
    }
    Err(Error::Usage(format!("{name:?} is not the name of a pool; use a-z, 0-9, '-', '_' and '.'")))
}

/// The path of one sandbox. An id that is none must not become another path.
fn sandbox_path(id: &str, rest: &str) -> Result<String, Error> {
    let fits = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !fits {
        return Err(Error::Usage(format!(
            "{id:?} is not the id of a sandbox; `atoll ls` shows ids"
        )));
    }
    Ok(format!("/v1/sandboxes/{id}{rest}"))
}

async fn read_bounded(mut response: Response) -> Result<Vec<u8>, ReadError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(ReadError::Broken)? {
        if body.len() + piece.len() > BODY_BYTES_MAX {
            return Err(ReadError::TooLong);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// Why a body could not be read whole.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("{0}")]
    Broken(reqwest::Error),
    #[error("it is longer than {BODY_BYTES_MAX} bytes")]
    TooLong,
}
