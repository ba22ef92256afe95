//! Names of templates and builds.

use sha2::{Digest, Sha256};

const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const TEMPLATE_ID_CHARS: usize = 20;

/// An id nobody else has.
pub(crate) fn template() -> String {
    letters(&random::<TEMPLATE_ID_CHARS>())
}

/// The id of a built-in template: the same after every start.
pub(crate) fn built_in_template(name: &str) -> String {
    letters(&seed("template", name)[..TEMPLATE_ID_CHARS])
}

/// A random UUID.
pub(crate) fn build() -> String {
    uuid(random())
}

/// The only build of a built-in template.
pub(crate) fn built_in_build(name: &str) -> String {
    let seed = seed("build", name);
    uuid(std::array::from_fn(|at| seed[at]))
}

/// Bytes that can't be guessed.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("Linux has had a random source since 3.17");
    bytes
}

/// Bytes as lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether `text` is written like a UUID.
pub(crate) fn is_uuid(text: &str) -> bool {
    let dash = |at| matches!(at, 8 | 13 | 18 | 23);
    text.len() == 36
        && text
            .bytes()
            .enumerate()
            .all(|(at, byte)| if dash(at) { byte == b'-' } else { byte.is_ascii_hexdigit() })
}

fn seed(kind: &str, name: &str) -> [u8; 32] {
    Sha256::digest(format!("atoll built-in {kind} {name}")).into()
}

fn letters(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect()
}

fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = hex(&bytes);
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_documented_shape() {
        for id in [template(), built_in_template("base")] {
            assert!(id.len() == 20, "{id}");
            assert!(id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "{id}");
        }
        assert!(is_uuid(&build()) && is_uuid(&built_in_build("base")));
        assert_eq!(built_in_template("base"), built_in_template("base"));
        assert_ne!(built_in_template("base"), built_in_template("other"));
        assert!(!is_uuid("v1") && !is_uuid(&"a".repeat(36)));
    }
}
