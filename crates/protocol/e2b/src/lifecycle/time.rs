//! Times as the wire writes them: RFC 3339, UTC, microseconds.

use atoll_core::Timestamp;

/// Writes a time, such as `2026-11-15T06:59:09.124874Z`.
pub(crate) fn text(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_microsecond(time.as_micros()).unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Reads a time with an offset.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let time: jiff::Timestamp = text.trim().parse().ok()?;
    Some(Timestamp::from_micros(time.as_microsecond()))
}

/// Whole seconds since the epoch.
pub(crate) fn seconds(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(1_000_000)
}
