//! Queries, and the queries within a query that `metadata` is.

use std::collections::BTreeMap;

use super::error::ApiError;

/// The pairs of a query, decoded once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a raw query; a token without `=` is a name with an empty value.
    pub(crate) fn parse(raw: Option<&str>) -> Self {
        Self(pairs(raw.unwrap_or_default()).collect())
    }

    /// The last value of `name`, unless it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.raw(name).filter(|value| !value.is_empty())
    }

    /// The last value of `name`, also when it is empty.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of `name`, each split at commas.
    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        let values = self.0.iter().filter(|(key, _)| key == name);
        let items = values.flat_map(|(_, value)| value.split(',')).map(str::trim);
        items.filter(|item| !item.is_empty()).collect()
    }

    /// A whole number within `range`.
    pub(crate) fn number(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text.trim().parse().ok().filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| {
            let (low, high) = range.into_inner();
            ApiError::invalid(name, format!("write a whole number from {low} to {high}"))
        })
    }

    /// A truth value, false when it is absent.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name).map(str::to_ascii_lowercase).as_deref() {
            Some("true" | "1") => Ok(true),
            None | Some("false" | "0") => Ok(false),
            Some(_) => Err(ApiError::invalid(name, "write true or false")),
        }
    }
}

/// Labels as SDKs send them: each key and value is percent-encoded, the pairs are joined to a
/// query, and that is encoded again as one value; here the outermost layer is off already. A
/// plain `key=value` reads the same.
pub(crate) fn metadata(text: &str) -> Result<BTreeMap<String, String>, ApiError> {
    if text.split('&').any(|token| !token.is_empty() && !token.contains('=')) {
        return Err(ApiError::invalid("metadata", "write pairs such as key=value&other=value"));
    }
    Ok(pairs(text).map(|(key, value)| (unescape(&key), unescape(&value))).collect())
}

fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split('&').filter(|token| !token.is_empty()).map(|token| {
        let (name, value) = token.split_once('=').unwrap_or((token, ""));
        (decode(name), decode(value))
    })
}

/// `+` is a space, `%41` is `A`.
fn decode(text: &str) -> String {
    unescape(&text.replace('+', " "))
}

/// `%41` is `A`; what is no escape stays, what is no UTF-8 is replaced.
pub(crate) fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = bytes
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .and_then(|hex| Some(nibble(hex[0])? << 4 | nibble(hex[1])?));
        decoded.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_in_every_form_that_clients_write() {
        let expected = BTreeMap::from([("a b".to_owned(), "c&d".to_owned())]);
        let query = Query::parse(Some("metadata=a%252520b%3Dc%252526d"));
        assert_eq!(metadata(query.get("metadata").unwrap()).unwrap(), expected);
        let plain = Query::parse(Some("metadata=team%3Da%26role%3D"));
        let plain = metadata(plain.get("metadata").unwrap()).unwrap();
        assert_eq!((plain["team"].as_str(), plain["role"].as_str()), ("a", ""));
        assert!(metadata("nothing").is_err());
    }

    #[test]
    fn lists_and_numbers() {
        let query = Query::parse(Some("state=running,paused&limit=7&bad=x"));
        assert_eq!(query.list("state"), ["running", "paused"]);
        assert_eq!(Query::parse(Some("state=running%2Cpaused")).list("state").len(), 2);
        assert_eq!(query.number("limit", 1..=100).unwrap(), Some(7));
        assert_eq!(query.number("limit", 1..=6).unwrap_err().status().as_u16(), 400);
        assert!(query.number("bad", 1..=6).is_err());
        assert_eq!(query.number("none", 1..=6).unwrap(), None);
    }
}
