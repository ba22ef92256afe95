//! API keys: which tenant a key belongs to.

use std::collections::HashMap;

use atoll_core::{Error, ErrorKind, Result, TenantId};
use sha2::{Digest, Sha256};

/// Known keys. Only digests are kept, so that neither a dump nor the time of a look-up tells a key.
#[derive(Clone, Debug, Default)]
pub struct Keys(HashMap<[u8; 32], TenantId>);

impl Keys {
    /// No keys: nobody gets in.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `key` act for `tenant`.
    pub fn insert(&mut self, key: &str, tenant: TenantId) {
        self.0.insert(digest(key), tenant);
    }

    /// Whose key this is.
    ///
    /// # Errors
    /// `Unauthenticated`, with the reason `MISSING_API_KEY` or `INVALID_API_KEY`.
    pub fn tenant(&self, key: Option<&str>) -> Result<TenantId> {
        let unauthenticated = |reason, message: &str| {
            Error::new(ErrorKind::Unauthenticated, message).with_reason(reason)
        };
        let key = key.filter(|k| !k.is_empty()).ok_or_else(|| {
            unauthenticated("MISSING_API_KEY", "an API key is needed: send it in the key header")
        })?;
        self.0.get(&digest(key)).cloned().ok_or_else(|| {
            unauthenticated("INVALID_API_KEY", "this API key is not known to the server")
        })
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}
