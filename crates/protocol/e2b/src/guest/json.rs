//! The JSON of protocol buffers: what it allows beyond plain JSON types.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde::{Deserialize, Deserializer, de};
use std::fmt;

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Bytes, written in base64 of either alphabet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Octets(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Octets;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes in base64")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Octets, E> {
                let engine = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
                engine.decode(text).map(Octets).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// Appends bytes in base64.
pub(super) fn push_octets(text: &mut String, bytes: &[u8]) {
    STANDARD.encode_string(bytes, text);
}

/// A whole number from 0 to 2³²−1, as a number or as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number(pub(super) u32);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 0 to 4294967295")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Number, E> {
                let number = u32::try_from(value).map(Number);
                number.map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Number, E> {
                let is_whole = value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value);
                let wrong = || E::invalid_value(de::Unexpected::Float(value), &self);
                is_whole.then_some(Number(value as u32)).ok_or_else(wrong)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
                let number = text.parse().map(Number);
                number.map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// An enumeration's value, by name or by number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum Choice {
    Number(i64),
    Name(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_several_clothes() {
        let number = |text: &str| serde_json::from_str::<Number>(text).ok().map(|n| n.0);
        assert_eq!(["7", "7.0", "\"7\""].map(number), [Some(7); 3]);
        assert_eq!(["-1", "7.5", "\"x\"", "4294967296", "null"].map(number), [None; 5]);
        let octets = |text: &str| serde_json::from_str::<Octets>(text).ok().map(|o| o.0);
        assert_eq!(octets("\"+/8=\""), Some(vec![0xfb, 0xff]));
        assert_eq!(octets("\"-_8\""), Some(vec![0xfb, 0xff]));
        assert_eq!(octets("\"\""), Some(vec![]));
        assert_eq!(octets("\"=\""), None);
        assert_eq!(octets("7"), None);
    }
}
