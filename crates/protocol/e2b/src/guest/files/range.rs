//! What a conditional or partial request wants of a file.

use axum::http::{HeaderMap, HeaderName, header};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What to answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of it.
    Whole,
    /// Bytes from the first up to but not including the last.
    Part(u64, u64),
    /// Nothing of it lies in the range.
    OutOfRange,
    /// It has not changed.
    Unchanged,
    /// It has changed.
    Changed,
}

/// Decides by the headers, the file's size and when it last changed. Files have no tags here, so
/// conditions on tags are not met.
pub(super) fn decide(headers: &HeaderMap, size: u64, modified_at: SystemTime) -> Wanted {
    let modified = whole_seconds(modified_at);
    if date(headers, &header::IF_UNMODIFIED_SINCE).is_some_and(|date| modified > date) {
        return Wanted::Changed;
    }
    let is_tagged = headers.contains_key(header::IF_NONE_MATCH);
    let unchanged = date(headers, &header::IF_MODIFIED_SINCE).is_some_and(|date| modified <= date);
    if unchanged && !is_tagged {
        return Wanted::Unchanged;
    }
    let is_current = match headers.contains_key(header::IF_RANGE) {
        true => date(headers, &header::IF_RANGE) == Some(modified),
        false => true,
    };
    let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    range.filter(|_| is_current).and_then(|range| parse(range, size)).unwrap_or(Wanted::Whole)
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

/// HTTP dates have no fractions.
pub(super) fn whole_seconds(moment: SystemTime) -> SystemTime {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

/// What a range asks for. Nothing for one to be ignored: another unit, several, or nonsense.
fn parse(range: &str, size: u64) -> Option<Wanted> {
    let (first, last) = range.strip_prefix("bytes=")?.trim().split_once('-')?;
    let (first, last) = (first.trim(), last.trim());
    let (start, end) = match (first, last) {
        ("", last) => (size.saturating_sub(number(last)?), size),
        (first, "") => (number(first)?, size),
        (first, last) => {
            let (start, last) = (number(first)?, number(last)?);
            if last < start {
                return None;
            }
            (start, last.saturating_add(1).min(size))
        }
    };
    Some(if start < end { Wanted::Part(start, end) } else { Wanted::OutOfRange })
}

fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    fn decided(pairs: &[(HeaderName, &str)]) -> Wanted {
        let pairs = pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        let changed = httpdate::parse_http_date(CHANGED).unwrap() + Duration::from_millis(500);
        decide(&pairs.collect(), 10, changed)
    }

    #[test]
    fn ranges_are_read_as_http_defines_them() {
        let cases = [
            ("bytes=0-4", Wanted::Part(0, 5)),
            ("bytes=5-", Wanted::Part(5, 10)),
            ("bytes=-3", Wanted::Part(7, 10)),
            ("bytes=-99", Wanted::Part(0, 10)),
            ("bytes=8-99999999999999999999", Wanted::Part(8, 10)),
            ("bytes=10-", Wanted::OutOfRange),
            ("bytes=-0", Wanted::OutOfRange),
            ("bytes=4-2", Wanted::Whole),
            ("bytes=0-1,3-4", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
            ("lines=0-1", Wanted::Whole),
        ];
        for (range, want) in cases {
            assert_eq!(decided(&[(header::RANGE, range)]), want, "{range}");
        }
    }

    #[test]
    fn conditions_compare_whole_seconds() {
        assert_eq!(decided(&[(header::IF_MODIFIED_SINCE, CHANGED)]), Wanted::Unchanged);
        assert_eq!(decided(&[(header::IF_MODIFIED_SINCE, BEFORE)]), Wanted::Whole);
        assert_eq!(decided(&[(header::IF_UNMODIFIED_SINCE, CHANGED)]), Wanted::Whole);
        assert_eq!(decided(&[(header::IF_UNMODIFIED_SINCE, BEFORE)]), Wanted::Changed);
        let part = |date| decided(&[(header::RANGE, "bytes=0-0"), (header::IF_RANGE, date)]);
        assert_eq!(part(CHANGED), Wanted::Part(0, 1));
        assert_eq!(part(BEFORE), Wanted::Whole);
        assert_eq!(part("\"tag\""), Wanted::Whole);
    }
}
