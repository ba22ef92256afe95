//! Times as the wire writes them: RFC 3339, UTC, microseconds.

use atoll_core::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::Value;

/// Writes a time, such as `2026-11-15T06:59:09.124874Z`.
pub(crate) fn text(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_microsecond(time.as_micros()).unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Reads a time with an offset, without one (then it is UTC), or as seconds since the epoch.
pub(crate) fn parse(value: &Value) -> Option<Timestamp> {
    let time = match value {
        Value::String(text) => parse_text(text.trim())?,
        Value::Number(number) => jiff::Timestamp::from_second(number.as_i64()?).ok()?,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(Timestamp::from_micros(time.as_microsecond()))
}

fn parse_text(text: &str) -> Option<jiff::Timestamp> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(time);
    }
    let naive: DateTime = text.parse().ok()?;
    Some(naive.to_zoned(TimeZone::UTC).ok()?.timestamp())
}
