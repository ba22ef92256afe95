//! SHA-256 digests and readers that compute them.

use sha2::{Digest as _, Sha256};
use std::{
    fmt,
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A `sha256:` digest; the only algorithm registries use.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Digest(String);

impl Digest {
    /// Reads `sha256:<64 lower-case hex digits>`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?;
        let valid = hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| Self(hex.to_owned()))
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    pub(crate) fn finish(hasher: Sha256) -> Self {
        let mut hex = String::with_capacity(64);
        for byte in hasher.finalize() {
            hex.push(char::from_digit(u32::from(byte >> 4), 16).expect("a nibble is below 16"));
            hex.push(char::from_digit(u32::from(byte & 15), 16).expect("a nibble is below 16"));
        }
        Self(hex)
    }

    pub(crate) fn hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

/// What remains of a limit shared by the layers of one image.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    remaining: Arc<AtomicU64>,
    pub(crate) limit: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { remaining: Arc::new(AtomicU64::new(limit)), limit }
    }

    /// Takes `amount`; false when less remains.
    pub(crate) fn take(&self, amount: u64) -> bool {
        self.remaining
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(amount))
            .is_ok()
    }
}

/// Carried by the `io::Error` of a [`Metered`] reader whose budget is spent.
#[derive(Debug, thiserror::Error)]
#[error("the limit on unpacked bytes is reached")]
pub(crate) struct BudgetSpent;

/// Hashes what passes and stops when the budget is spent.
pub(crate) struct Metered<R> {
    inner: R,
    hasher: Sha256,
    budget: Budget,
}

impl<R: Read> Metered<R> {
    pub(crate) fn new(inner: R, budget: Budget) -> Self {
        Self { inner, hasher: Sha256::new(), budget }
    }

    /// Reads what is left and gives the digest of everything read.
    pub(crate) fn finish(mut self) -> io::Result<Digest> {
        let mut rest = vec![0; 64 * 1024];
        while self.read(&mut rest)? > 0 {}
        Ok(Digest::finish(self.hasher))
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if !self.budget.take(count as u64) {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, BudgetSpent));
        }
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}
