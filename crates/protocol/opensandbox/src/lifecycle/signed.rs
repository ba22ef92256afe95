//! Signed routes: a port of a sandbox opened to whoever holds the link, until a given time.
//!
//! The token is `{id}-{port}-{expiry in base 36}-{signature}`, the signature eight hexadecimal
//! digits of a SHA-256 and the name of the key. So short a signature is safe only because the id
//! within it can't be guessed either.

use atoll_core::SandboxId;
use sha2::{Digest, Sha256};

/// The one key there is. A second one would allow rotation.
const KEY_ID: char = '1';
const SIGNATURE_DIGITS: usize = 8;

/// Makes and checks signed routes.
pub struct RouteSigner {
    secret: Vec<u8>,
}

/// What a valid token opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) id: SandboxId,
    pub(crate) port: u16,
}

/// Why a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// It isn't one of ours.
    Forged,
    /// Its time is over.
    Expired,
}

impl RouteSigner {
    /// Signs with `secret`, which must not be guessable and should outlive the process.
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self { secret: secret.into() }
    }

    /// A token for `port` of `id`, valid until `expires_seconds` after the epoch.
    pub(crate) fn sign(&self, id: &SandboxId, port: u16, expires_seconds: u64) -> String {
        let expiry = base36(expires_seconds);
        let signature = self.signature(id.as_str(), port, &expiry);
        format!("{id}-{port}-{expiry}-{signature}")
    }

    /// What `token` opens at `now_seconds` after the epoch.
    pub(crate) fn check(&self, token: &str, now_seconds: u64) -> Result<Grant, TokenError> {
        let mut parts = token.split('-');
        let (Some(id), Some(port), Some(expiry), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Forged);
        };
        let id = SandboxId::parse(id).map_err(|_| TokenError::Forged)?;
        let port: u16 = port.parse().map_err(|_| TokenError::Forged)?;
        let expected = self.signature(id.as_str(), port, expiry);
        if !same(expected.as_bytes(), signature.as_bytes()) {
            return Err(TokenError::Forged);
        }
        let expires = u64::from_str_radix(expiry, 36).map_err(|_| TokenError::Forged)?;
        if expires <= now_seconds { Err(TokenError::Expired) } else { Ok(Grant { id, port }) }
    }

    fn signature(&self, id: &str, port: u16, expiry: &str) -> String {
        let canonical = format!("v1\nshort\n{id}\n{port}\n{expiry}\n");
        let mut hash = Sha256::new();
        for part in [self.secret.as_slice(), canonical.as_bytes()] {
            let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
            hash.update(length.to_be_bytes());
            hash.update(part);
        }
        let mut signature: String =
            hash.finalize().iter().take(SIGNATURE_DIGITS / 2).map(|b| format!("{b:02x}")).collect();
        signature.push(KEY_ID);
        signature
    }
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        let digit = u32::try_from(number % 36).unwrap_or(0);
        digits.push(char::from_digit(digit, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

/// Compares without telling by its time where the difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The token for secret `secret`, id `abc123`, port 8080, expiry 1800000000, computed with
    /// another program: sha256(00000006 "secret" 0000001c "v1\nshort\nabc123\n8080\ntro8w0\n").
    const KNOWN: &str = "abc123-8080-tro8w0-84f326751";

    fn id() -> SandboxId {
        SandboxId::parse("abc123").unwrap()
    }

    #[test]
    fn tokens_match_a_vector_computed_elsewhere() {
        assert_eq!(RouteSigner::new("secret").sign(&id(), 8080, 1_800_000_000), KNOWN);
    }

    #[test]
    fn a_token_opens_its_port_until_its_time_and_nothing_else() {
        let signer = RouteSigner::new("secret");
        let grant = Grant { id: id(), port: 8080 };
        assert_eq!(signer.check(KNOWN, 1_799_999_999), Ok(grant));
        assert_eq!(signer.check(KNOWN, 1_800_000_000), Err(TokenError::Expired));
        let other = RouteSigner::new("other");
        assert_eq!(other.check(KNOWN, 0), Err(TokenError::Forged));
        for forged in [
            KNOWN.replace("8080", "8081"),
            KNOWN.replace("abc123", "abc124"),
            format!("{KNOWN}-1"),
            "a-b".to_owned(),
            String::new(),
        ] {
            assert_eq!(signer.check(&forged, 0), Err(TokenError::Forged), "{forged}");
        }
    }
}
