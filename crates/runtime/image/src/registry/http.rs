//! HTTP clients: one that honours the environment's proxy, one for this machine.

use crate::{Limits, reference::is_loopback};
use reqwest::{Client, ClientBuilder, Url, redirect::Policy};
use std::{error::Error as _, sync::OnceLock};

const REDIRECTS_MAX: usize = 5;

/// Clients made when first needed, so that a machine without certificates can still use local ones.
pub(super) struct Http {
    limits: Limits,
    direct: OnceLock<Client>,
    proxied: OnceLock<Client>,
}

impl Http {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), direct: OnceLock::new(), proxied: OnceLock::new() }
    }

    /// The client for a URL, or why there is none.
    pub(super) fn client(&self, url: &Url) -> Result<&Client, String> {
        let local = url.host_str().is_some_and(is_loopback);
        let (slot, builder) = match local {
            true => (&self.direct, Client::builder().no_proxy()),
            false => (&self.proxied, Client::builder()),
        };
        if let Some(client) = slot.get() {
            return Ok(client);
        }
        let client = self.build(builder)?;
        Ok(slot.get_or_init(|| client))
    }

    fn build(&self, builder: ClientBuilder) -> Result<Client, String> {
        // Fails when a provider is installed already, which is as good.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        builder
            .user_agent(concat!("atoll/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.limits.connect_timeout)
            .read_timeout(self.limits.stall_timeout)
            .redirect(redirects())
            .build()
            .map_err(|e| format!("{}; is the package ca-certificates installed?", reason(&e)))
    }
}

/// Follows a few redirects and never from https to plain http; reqwest itself drops credentials
/// when the host changes.
fn redirects() -> Policy {
    Policy::custom(|attempt| {
        let downgrade = attempt.url().scheme() != "https"
            && attempt.previous().last().is_some_and(|url| url.scheme() == "https");
        if downgrade {
            return attempt.error("it redirects from https to plain http");
        }
        if attempt.previous().len() > REDIRECTS_MAX {
            return attempt.error("it redirects too often");
        }
        attempt.follow()
    })
}

/// The innermost cause, which says what happened; the outer ones say which request it was.
pub(super) fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        let waited = if error.is_connect() { "accept the connection" } else { "answer" };
        return format!("it did not {waited} in time");
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let text = cause.to_string();
    // Only the outermost error names the URL, which may hold a signed query.
    if error.source().is_none() { "the request failed".to_owned() } else { text }
}
