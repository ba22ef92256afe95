use sha2::{Digest, Sha256};
use std::fmt;

const BLOCK_BYTES: usize = 64;
const INNER: u8 = 0x36;
const OUTER: u8 = 0x5C;

/// A secret that signs messages with HMAC-SHA256 (RFC 2104).
pub(crate) struct Key {
    block: [u8; BLOCK_BYTES],
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    pub(crate) fn new(secret: &str) -> Self {
        let mut block = [0; BLOCK_BYTES];
        match block.get_mut(..secret.len()) {
            Some(start) => start.copy_from_slice(secret.as_bytes()),
            None => block[..32].copy_from_slice(&Sha256::digest(secret)),
        }
        Self { block }
    }

    /// The signature over the parts one after another, in hexadecimal digits.
    pub(crate) fn sign<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> String {
        let mut inner = Sha256::new_with_prefix(self.block.map(|byte| byte ^ INNER));
        for part in parts {
            inner.update(part);
        }
        let outer = Sha256::new_with_prefix(self.block.map(|byte| byte ^ OUTER));
        let digest = outer.chain_update(inner.finalize()).finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether this is their signature, in a time that tells nothing about it.
    pub(crate) fn verify<'a>(
        &self,
        parts: impl Iterator<Item = &'a [u8]>,
        signature: &[u8],
    ) -> bool {
        let right = self.sign(parts);
        let differs = right.bytes().zip(signature).fold(0, |sum, (a, b)| sum | (a ^ b));
        right.len() == signature.len() && differs == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_s_examples_come_out() {
        // RFC 4231, case 2; and the well-known signature of nothing with nothing.
        let cases = [
            (
                "Jefe".to_owned(),
                "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (String::new(), "", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"),
        ];
        for (secret, text, want) in cases {
            let key = Key::new(&secret);
            let (start, end) = text.as_bytes().split_at(text.len() / 2);
            assert_eq!(key.sign([start, end].into_iter()), want);
            assert!(key.verify([start, end].into_iter(), want.as_bytes()));
            assert!(!key.verify([start, end].into_iter(), &want.as_bytes()[1..]));
        }
    }

    #[test]
    fn a_long_secret_is_its_own_digest() {
        let long = "s".repeat(200);
        let digest: [u8; 32] = Sha256::digest(&long).into();
        let mut block = [0; BLOCK_BYTES];
        block[..32].copy_from_slice(&digest);
        let short = Key { block };
        assert_eq!(
            Key::new(&long).sign([&b"x"[..]].into_iter()),
            short.sign([&b"x"[..]].into_iter())
        );
    }
}
