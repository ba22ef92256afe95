//! Words that open a sandbox: its token, what is derived from it, and signatures made with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest, Sha256};

/// Keeps the derived token apart from everything else that may be derived from the same word.
const TRAFFIC_LABEL: &str = "atoll e2b traffic token v1";
/// Size of a block of SHA-256, to which HMAC pads its key.
const BLOCK_BYTES: usize = 64;
const SIGNATURE_PREFIX: &str = "v1_";
/// Size of a signature, and of the same in base64.
const SIGNATURE_BYTES: usize = 32;
const SIGNATURE_CHARS: usize = 43;

/// The token that opens the ports of a sandbox without public traffic. It can be made from the
/// access token at any time, and tells nothing about it.
pub(crate) fn traffic(access_token: &str) -> String {
    let tag = hmac(access_token.as_bytes(), TRAFFIC_LABEL.as_bytes());
    tag.iter().take(20).map(|byte| format!("{byte:02x}")).collect()
}

/// Takes as long for a wrong token as for the right one.
pub(crate) fn same(given: impl AsRef<[u8]>, right: impl AsRef<[u8]>) -> bool {
    let (given, right) = (given.as_ref(), right.as_ref());
    let pairs = given.iter().zip(right);
    given.len() == right.len() && pairs.fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

/// What a signed link to a file says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignedFile<'a> {
    /// As the signer wrote it, not resolved.
    pub(crate) path: &'a str,
    /// `read` or `write`.
    pub(crate) operation: &'static str,
    /// Empty when the signer named none.
    pub(crate) user: &'a str,
    /// As the signer wrote it: seconds since the epoch.
    pub(crate) expiration: Option<&'a str>,
}

impl SignedFile<'_> {
    /// With what comes before the token hashed already, for many tokens to be tried.
    pub(crate) fn begin(&self) -> Begun {
        let mut hash = Sha256::new();
        for part in [self.path, ":", self.operation, ":", self.user, ":"] {
            hash.update(part);
        }
        let end = self.expiration.map(|expiration| format!(":{expiration}"));
        Begun { hash, end: end.unwrap_or_default() }
    }
}

/// A signed link, but for the token.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    hash: Sha256,
    end: String,
}

impl Begun {
    /// Whether the holder of `access_token` makes this signature.
    pub(crate) fn is_signed_with(&self, access_token: &str, signature: &Signature) -> bool {
        let hash = self.hash.clone().chain_update(access_token).chain_update(&self.end);
        same(hash.finalize(), signature.0)
    }
}

/// What proves that a link was made by somebody who has a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature([u8; SIGNATURE_BYTES]);

impl Signature {
    /// Reads `v1_` and 43 characters of base64; nothing else is one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let encoded = text.strip_prefix(SIGNATURE_PREFIX)?;
        if encoded.len() != SIGNATURE_CHARS {
            return None;
        }
        STANDARD_NO_PAD.decode(encoded).ok()?.try_into().ok().map(Self)
    }
}

/// HMAC-SHA-256 of RFC 2104, for keys of at most one block; longer ones are hashed first.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK_BYTES];
    if key.len() > BLOCK_BYTES {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner =
        Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    let outer = Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner);
    outer.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_is_that_of_the_published_examples() {
        let hex = |bytes: [u8; 32]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(
            hex(hmac(&[0x0b; 20], b"Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn derived_tokens_differ_from_their_source_and_from_each_other() {
        assert_ne!(traffic("a"), traffic("b"));
        assert_eq!(traffic("a").len(), 40);
        assert!(same("abc", "abc") && !same("abc", "abd") && !same("abc", "abcd"));
    }

    #[test]
    fn a_signature_covers_everything_it_names() {
        let file =
            SignedFile { path: "/a b", operation: "read", user: "user", expiration: Some("9") };
        let expected = STANDARD_NO_PAD.encode(Sha256::digest("/a b:read:user:tok:9"));
        let signed = Signature::parse(&format!("v1_{expected}")).unwrap();
        assert!(file.begin().is_signed_with("tok", &signed));
        for other in [
            SignedFile { path: "/a", ..file },
            SignedFile { operation: "write", ..file },
            SignedFile { user: "", ..file },
            SignedFile { expiration: None, ..file },
        ] {
            assert!(!other.begin().is_signed_with("tok", &signed), "{other:?}");
        }
        assert!(!file.begin().is_signed_with("other", &signed));
    }

    #[test]
    fn a_signature_has_one_form() {
        let right = format!("v1_{}", STANDARD_NO_PAD.encode([7; 32]));
        assert_eq!(Signature::parse(&right), Some(Signature([7; 32])));
        let short = &right[..right.len() - 1];
        let (long, padded) = (format!("{right}A"), format!("{right}="));
        let (other, strange) = (right.replace("v1_", "v2_"), format!("{short}!"));
        for wrong in ["", "v1_", short, &long, &padded, &other, &strange, &right[3..]] {
            assert_eq!(Signature::parse(wrong), None, "{wrong}");
        }
    }
}
