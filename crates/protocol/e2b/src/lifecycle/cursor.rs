//! Places in long lists: opaque to clients, stable while items come and go.

use atoll_core::Timestamp;
use axum::http::{HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::error::ApiError;

/// Where a page says how to get the next one.
pub(crate) const NEXT_TOKEN: &str = "x-next-token";

/// The last item of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) at: Timestamp,
    pub(crate) id: String,
    /// Whether the list goes from the oldest to the newest.
    pub(crate) oldest_first: bool,
}

impl Cursor {
    fn text(&self) -> String {
        let order = if self.oldest_first { "asc" } else { "desc" };
        URL_SAFE_NO_PAD.encode(format!("{}__{}__{order}", self.at.as_micros(), self.id))
    }

    /// The cursor as a header's value.
    pub(crate) fn token(&self) -> HeaderValue {
        HeaderValue::try_from(self.text()).expect("base64 is a header value")
    }

    /// Reads a cursor of a list in this order.
    pub(crate) fn parse(text: &str, oldest_first: bool) -> Result<Self, ApiError> {
        let wrong = || ApiError::invalid("nextToken", "Invalid next token");
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| wrong())?;
        let plain = String::from_utf8(bytes).map_err(|_| wrong())?;
        let mut parts = plain.split("__");
        let parsed = (parts.next(), parts.next(), parts.next(), parts.next());
        let (Some(at), Some(id), Some(order), None) = parsed else { return Err(wrong()) };
        let at = at.parse().map(Timestamp::from_micros).map_err(|_| wrong())?;
        if id.len() > 64 || order != if oldest_first { "asc" } else { "desc" } {
            return Err(wrong());
        }
        Ok(Self { at, id: id.to_owned(), oldest_first })
    }

    /// Whether an item stands after this place: newest first and then by id, or just the reverse.
    pub(crate) fn is_before(&self, at: Timestamp, id: &str) -> bool {
        let newest_first = (self.at, id).cmp(&(at, self.id.as_str()));
        if self.oldest_first { newest_first.is_lt() } else { newest_first.is_gt() }
    }
}

/// Cuts a page off what stands after the place that was asked for; the headers say where the next
/// page begins, if there is one.
pub(crate) fn page<T>(
    mut items: Vec<T>,
    limit: usize,
    place: impl Fn(&T) -> Cursor,
) -> (Vec<T>, HeaderMap) {
    let mut headers = HeaderMap::new();
    if items.len() > limit {
        items.truncate(limit);
        if let Some(last) = items.last() {
            headers.insert(NEXT_TOKEN, place(last).token());
        }
    }
    (items, headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_only_for_its_own_order() {
        for oldest_first in [true, false] {
            let cursor = Cursor { at: Timestamp::from_micros(17), id: "abc".into(), oldest_first };
            assert_eq!(Cursor::parse(&cursor.text(), oldest_first).unwrap(), cursor);
            assert!(Cursor::parse(&cursor.text(), !oldest_first).is_err());
        }
        for bad in ["", "x", "####", &URL_SAFE_NO_PAD.encode("1__a"), "é"] {
            assert_eq!(Cursor::parse(bad, true).unwrap_err().status().as_u16(), 400, "{bad}");
        }
    }

    #[test]
    fn newest_comes_first_and_equals_go_by_id() {
        let at = Timestamp::from_micros;
        let place = |oldest_first| Cursor { at: at(5), id: "m".into(), oldest_first };
        for (item, id, after) in
            [(4, "a", true), (6, "z", false), (5, "n", true), (5, "l", false), (5, "m", false)]
        {
            assert_eq!(place(false).is_before(at(item), id), after, "{item} {id}");
            if (item, id) != (5, "m") {
                assert_eq!(place(true).is_before(at(item), id), !after, "{item} {id}");
            }
        }
        assert!(!place(true).is_before(at(5), "m"));
    }
}
