//! What goes over the wire, as far as the verbs need it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;

/// A wish for a sandbox.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewSandbox {
    pub image: Image,
    pub entrypoint: Vec<String>,
    pub resource_limits: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Image {
    pub uri: String,
}

/// A sandbox as the server shows it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    pub id: String,
    pub status: Status,
    pub image: Option<Image>,
    pub snapshot_id: Option<String>,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    pub expires_at: Option<String>,
    pub created_at: String,
}

#[derive(Deserialize)]
pub(crate) struct Status {
    pub state: String,
    #[serde(default)]
    pub message: String,
}

/// All warm pools as the server sent them.
#[derive(Deserialize)]
pub(crate) struct PoolPage {
    pub pools: Vec<Value>,
}

/// A warm pool as the server shows it.
#[derive(Deserialize)]
pub(crate) struct PoolRow {
    pub name: String,
    pub template: Option<String>,
    pub size: u64,
    pub ready: u64,
    pub starting: u64,
    pub waiting: u64,
    pub hits: u64,
    pub misses: u64,
    pub trouble: Option<String>,
}

/// What OpenSandbox has no place for.
#[derive(Deserialize)]
pub(crate) struct Detail {
    #[serde(default)]
    pub timeline: Vec<Entry>,
    pub diagnostic: Option<Diagnostic>,
}

#[derive(Deserialize)]
pub(crate) struct Entry {
    pub at: String,
    pub phase: String,
    #[serde(default)]
    pub message: String,
}

#[derive(Deserialize)]
pub(crate) struct Diagnostic {
    pub reason: String,
    pub message: String,
    #[serde(default)]
    pub recommendation: String,
}

#[derive(Deserialize)]
pub(super) struct Page {
    pub items: Vec<Value>,
    pub pagination: Pagination,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pagination {
    pub has_next_page: bool,
}

#[derive(Deserialize)]
pub(super) struct Endpoint {
    /// Host and path, without a scheme.
    pub endpoint: String,
}

/// An error's body.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    code: String,
    message: String,
}

impl Refusal {
    /// The refusal in `body`, or the body itself when it is none.
    pub(super) fn parse(status: u16, body: &[u8]) -> Error {
        let mut refusal: Self = serde_json::from_slice(body).unwrap_or_default();
        if refusal.message.is_empty() {
            refusal.message = String::from_utf8_lossy(body).chars().take(500).collect();
        }
        if refusal.message.trim().is_empty() {
            refusal.message = "the server refused without a word".to_owned();
        }
        if refusal.code.is_empty() {
            refusal.code = format!("HTTP {status}");
        }
        Error::Refused { status, code: refusal.code, message: refusal.message }
    }
}

/// `key=value&…` with everything but letters, digits and `-._~` escaped.
pub(super) fn form<K: AsRef<str>>(pairs: &[(K, String)]) -> String {
    let pair = |(key, value): &(K, String)| format!("{}={}", escape(key.as_ref()), escape(value));
    pairs.iter().map(pair).collect::<Vec<_>>().join("&")
}

pub(super) fn escape(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes()
        .map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

impl From<String> for Image {
    fn from(uri: String) -> Self {
        Self { uri }
    }
}

impl Sandbox {
    /// Where its files came from, for people.
    pub(crate) fn source(&self) -> String {
        match (&self.image, &self.snapshot_id) {
            (Some(image), _) => image.uri.clone(),
            (None, Some(snapshot)) => format!("snapshot {snapshot}"),
            (None, None) => "-".to_owned(),
        }
    }
}
