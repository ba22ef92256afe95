//! Words that open a sandbox: its token, what is derived from it, and signatures made with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest, Sha256};

/// Keeps the derived token apart from everything else that may be derived from the same word.
const TRAFFIC_LABEL: &str = "atoll e2b traffic token v1";
/// Size of a block of SHA-256, to which HMAC pads its key.
const BLOCK_BYTES: usize = 64;

/// The token that opens the ports of a sandbox without public traffic. It can be made from the
/// access token at any time, and tells nothing about it.
pub(crate) fn traffic(access_token: &str) -> String {
    let tag = hmac(access_token.as_bytes(), TRAFFIC_LABEL.as_bytes());
    tag.iter().take(20).map(|byte| format!("{byte:02x}")).collect()
}

/// Takes as long for a wrong token as for the right one.
pub(crate) fn same(given: &str, right: &str) -> bool {
    let pairs = given.bytes().zip(right.bytes());
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
    /// The signature that the holder of `access_token` makes.
    pub(crate) fn signature(&self, access_token: &str) -> String {
        let mut hash = Sha256::new();
        for part in [self.path, ":", self.operation, ":", self.user, ":", access_token] {
            hash.update(part);
        }
        if let Some(expiration) = self.expiration {
            hash.update(":");
            hash.update(expiration);
        }
        format!("v1_{}", STANDARD_NO_PAD.encode(hash.finalize()))
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
        let expected = Sha256::digest("/a b:read:user:tok:9");
        let signed = file.signature("tok");
        assert_eq!(signed, format!("v1_{}", STANDARD_NO_PAD.encode(expected)));
        for other in [
            SignedFile { path: "/a", ..file },
            SignedFile { operation: "write", ..file },
            SignedFile { user: "", ..file },
            SignedFile { expiration: None, ..file },
        ] {
            assert_ne!(other.signature("tok"), signed, "{other:?}");
        }
        assert_ne!(file.signature("other"), signed);
    }
}
