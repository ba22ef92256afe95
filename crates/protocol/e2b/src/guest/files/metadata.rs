use crate::guest::rest::Refusal;
use atoll_guest::files::Attributes;
use axum::http::HeaderMap;

/// Where metadata is kept in a file's extended attributes.
pub(crate) const PREFIX: &str = "user.e2b.";
const HEADER_PREFIX: &str = "x-metadata-";
const KEY_BYTES_MAX: usize = 246;
const TOTAL_BYTES_MAX: usize = 4096;

/// The metadata that an upload's headers carry.
pub(super) fn read(headers: &HeaderMap) -> Result<Attributes, Refusal> {
    let mut metadata = Attributes::new();
    let mut total = 0;
    for (name, value) in headers {
        // Header names arrive in lower case.
        let Some(key) = name.as_str().strip_prefix(HEADER_PREFIX) else { continue };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let problem = format!("a metadata key must have 1 to {KEY_BYTES_MAX} bytes: {key:?}");
            return Err(Refusal::invalid(problem));
        }
        let is_printable = |byte: &u8| (b' '..=b'~').contains(byte);
        let text = value.to_str().ok().filter(|text| text.as_bytes().iter().all(is_printable));
        let text = text.ok_or_else(|| {
            Refusal::invalid(format!("the metadata value of {key:?} must be printable ASCII"))
        })?;
        total += key.len() + text.len();
        if metadata.insert(key.to_owned(), text.to_owned()).is_some() {
            return Err(Refusal::invalid(format!("the metadata key {key:?} is given twice")));
        }
    }
    if total > TOTAL_BYTES_MAX {
        let problem = format!("{total} bytes of metadata are more than {TOTAL_BYTES_MAX}");
        return Err(Refusal::invalid(problem));
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    #[test]
    fn metadata_is_bounded_and_printable() {
        let read = |name: String, value: &[u8]| {
            let name = HeaderName::try_from(name).unwrap();
            read(&HeaderMap::from_iter([(name, HeaderValue::from_bytes(value).unwrap())])).ok()
        };
        let key = |length: usize| format!("X-Metadata-{}", "k".repeat(length));
        let good = read("X-Metadata-Some-Key".to_owned(), b"a value").unwrap();
        assert_eq!(good, Attributes::from([("some-key".to_owned(), "a value".to_owned())]));
        assert_eq!(read("Content-Type".to_owned(), b"x"), Some(Attributes::new()));
        assert!(read(key(246), b"v").is_some());
        assert!(read(key(247), b"v").is_none());
        assert!(read(key(0), b"v").is_none());
        assert!(read(key(1), &[b'v'; 4095]).is_some());
        assert!(read(key(1), &[b'v'; 4096]).is_none());
        assert!(read(key(1), "é".as_bytes()).is_none());
        assert!(read(key(1), b"a\tb").is_none());
    }
}
