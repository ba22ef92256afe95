use super::Failure;
use axum::http::HeaderMap;
use std::time::Duration;

const TIMEOUT: &str = "connect-timeout-ms";
/// The protocol allows ten digits.
const TIMEOUT_DIGITS_MAX: usize = 10;
const KEEPALIVE: &str = "keepalive-ping-interval";
const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(90);
const KEEPALIVE_SECONDS_MAX: u64 = 24 * 3600;

/// How long the call may take, if it says so.
pub(crate) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Failure> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    let digits = value.to_str().unwrap_or_default();
    let is_number = (1..=TIMEOUT_DIGITS_MAX).contains(&digits.len())
        && digits.bytes().all(|digit| digit.is_ascii_digit());
    match digits.parse() {
        Ok(milliseconds) if is_number => Ok(Some(Duration::from_millis(milliseconds))),
        _ => Err(Failure::invalid(format!(
            "Connect-Timeout-Ms: {digits:?} is not a number of up to {TIMEOUT_DIGITS_MAX} digits"
        ))),
    }
}

/// How long a stream may be silent; a value without sense counts as none.
pub(crate) fn keepalive(headers: &HeaderMap) -> Duration {
    let text = headers.get(KEEPALIVE).and_then(|value| value.to_str().ok());
    let seconds = text.and_then(|text| text.trim().parse().ok()).filter(|seconds| *seconds > 0);
    seconds.map_or(KEEPALIVE_DEFAULT, |seconds: u64| {
        Duration::from_secs(seconds.min(KEEPALIVE_SECONDS_MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_with_their_bounds() {
        let headers = |name, value: &str| {
            HeaderMap::from_iter([(
                axum::http::HeaderName::from_static(name),
                value.parse().unwrap(),
            )])
        };
        let read = |value| timeout(&headers(TIMEOUT, value));
        assert_eq!(timeout(&HeaderMap::new()), Ok(None));
        assert_eq!(read("60000"), Ok(Some(Duration::from_secs(60))));
        assert_eq!(read("0"), Ok(Some(Duration::ZERO)));
        for wrong in ["", "-1", "+5", "1.5", "12345678901", "x"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        let read = |value| keepalive(&headers(KEEPALIVE, value)).as_secs();
        assert_eq!(["50", "0", "x", "99999999999"].map(read), [50, 90, 90, 86400]);
        assert_eq!(keepalive(&HeaderMap::new()).as_secs(), 90);
    }
}
