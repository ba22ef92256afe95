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

    /// Whose key this is; `header` is where a door looks for keys, told to whoever sent none.
    ///
    /// # Errors
    /// `Unauthenticated`, with the reason `MISSING_API_KEY` or `INVALID_API_KEY`.
    pub fn tenant(&self, key: Option<&str>, header: &str) -> Result<TenantId> {
        let unauthenticated = |reason, message: String| {
            Error::new(ErrorKind::Unauthenticated, message).with_reason(reason)
        };
        let key = key.filter(|k| !k.is_empty()).ok_or_else(|| {
            let message = format!("an API key is needed: send it in the header {header}");
            unauthenticated("MISSING_API_KEY", message)
        })?;
        self.0.get(&digest(key)).cloned().ok_or_else(|| {
            let message = format!("the API key in the header {header} is not known to the server");
            unauthenticated("INVALID_API_KEY", message)
        })
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}
