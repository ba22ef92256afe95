//! Names that sort by time, and tokens.

use atoll_core::Timestamp;

use crate::config::Random;

/// Digits before letters, so that text order is time order; without letters that look alike.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// 50 bits of milliseconds last until the year 37,000.
const TIME_CHARS: u32 = 10;
const RANDOM_CHARS: u32 = 10;

/// A name nobody else has: milliseconds, then 50 random bits.
pub(crate) fn name(now: Timestamp, random: &Random) -> String {
    let millis = u64::try_from(now.as_micros() / 1000).unwrap_or(0);
    let noise = u64::from_le_bytes(random.bytes());
    digits(millis, TIME_CHARS).chain(digits(noise, RANDOM_CHARS)).collect()
}

/// 32 hex digits that can't be guessed.
pub(crate) fn token(random: &Random) -> String {
    random.bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digits(number: u64, count: u32) -> impl Iterator<Item = char> {
    (0..count).rev().map(move |place| char::from(ALPHABET[(number >> (5 * place)) as usize & 31]))
}

#[cfg(test)]
mod tests {
    use atoll_core::{SandboxId, Timestamp};

    use super::{Random, name, token};

    #[test]
    fn names_are_ids_that_sort_by_time() {
        let random = Random::system();
        let mut last = String::new();
        for millis in [1, 2, 31, 32, 1_700_000_000_000, 1_900_000_000_000] {
            let next = name(Timestamp::from_micros(millis * 1000), &random);
            assert!(SandboxId::parse(&next).is_ok_and(|id| id.as_str().len() == 20), "{next}");
            assert!(next > last, "{next} must come after {last}");
            last = next;
        }
    }

    #[test]
    fn tokens_differ() {
        let random = Random::system();
        assert_eq!(token(&random).len(), 32);
        assert_ne!(token(&random), token(&random));
    }
}
