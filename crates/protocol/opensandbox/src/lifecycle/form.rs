//! URL-encoded pairs: queries, and the query within a query that `metadata` is.

use super::error::{ApiError, Problem};

/// The pairs of a query, decoded once.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a raw query; a token without `=` is a name with an empty value.
    pub(crate) fn parse(raw: Option<&str>) -> Self {
        let pairs = raw.unwrap_or_default().split('&').filter(|token| !token.is_empty());
        Self(
            pairs
                .map(|token| {
                    let (name, value) = token.split_once('=').unwrap_or((token, ""));
                    (decode(name), decode(value))
                })
                .collect(),
        )
    }

    /// The last value of `name`.
    pub(crate) fn last(&self, name: &'static str) -> Option<&str> {
        self.all(name).last()
    }

    /// All values of `name`.
    pub(crate) fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A whole number within `range`, or `default` when it is absent.
    pub(crate) fn number(
        &self,
        name: &'static str,
        range: std::ops::RangeInclusive<i64>,
        default: i64,
    ) -> Result<i64, ApiError> {
        let Some(text) = self.last(name) else { return Ok(default) };
        let found = text.trim().parse::<i64>().ok();
        let problem = |kind, message: String| {
            Problem::new(["query", name], kind, message).with_input(text.into())
        };
        match found {
            None => Err(problem("int_parsing", "Input should be a valid integer".into()).into()),
            Some(number) if number < *range.start() => Err(problem(
                "greater_than_equal",
                format!("Input should be greater than or equal to {}", range.start()),
            )
            .into()),
            Some(number) if number > *range.end() => Err(problem(
                "less_than_equal",
                format!("Input should be less than or equal to {}", range.end()),
            )
            .into()),
            Some(number) => Ok(number),
        }
    }

    /// A truth value as the reference server reads it, or false when it is absent.
    pub(crate) fn flag(&self, name: &'static str) -> Result<bool, ApiError> {
        let Some(text) = self.last(name) else { return Ok(false) };
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" | "y" | "t" => Ok(true),
            "false" | "0" | "no" | "off" | "n" | "f" => Ok(false),
            _ => Err(Problem::new(
                ["query", name],
                "bool_parsing",
                "Input should be a valid boolean: write true or false".to_owned(),
            )
            .with_input(text.into())
            .into()),
        }
    }
}

/// The pairs of a form in which every token must have a `=`; `None` when one has not.
pub(crate) fn strict_pairs(text: &str) -> Option<Vec<(String, String)>> {
    text.split('&')
        .filter(|token| !token.is_empty())
        .map(|token| token.split_once('=').map(|(name, value)| (decode(name), decode(value))))
        .collect()
}

/// `+` is a space, `%41` is `A`; what is no escape stays, what is no UTF-8 is replaced.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = bytes
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .and_then(|hex| Some(nibble(hex[0])? << 4 | nibble(hex[1])?));
        match escaped {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
