//! Resource strings: `500m`, `1.5`, `512Mi`, `2G`.

use std::collections::BTreeMap;

use atoll_core::Resources;

use crate::lifecycle::error::ApiError;

/// More than any machine has; keeps arithmetic far from overflow.
const CPU_MILLIS_MAX: u64 = 1_000_000;

/// Reads `resourceLimits`; what this machine can't limit is refused.
pub(super) fn read(limits: &BTreeMap<String, String>) -> Result<Resources, ApiError> {
    let mut resources = Resources::default();
    for (key, text) in limits {
        let field = format!("resourceLimits.{key}");
        match key.as_str() {
            "cpu" => {
                resources.cpu_millis = Some(cpu(text).ok_or_else(|| {
                    ApiError::invalid(&field, "write cores such as \"0.5\" or \"2\", or \"500m\"")
                })?)
            }
            "memory" => {
                resources.memory_bytes = Some(memory(text).ok_or_else(|| {
                    ApiError::invalid(
                        &field,
                        "write a whole number above 0 with an optional unit: Ki Mi Gi Ti K M G T",
                    )
                })?)
            }
            "pids" => {
                resources.pids = Some(
                    count(text)
                        .ok_or_else(|| ApiError::invalid(&field, "write a whole number above 0"))?,
                )
            }
            "gpu" => {
                return Err(ApiError::invalid(&field, "this server has no GPUs; leave it out"));
            }
            _ => {
                return Err(ApiError::invalid(
                    &field,
                    "can't be limited here; cpu, memory and pids can",
                ));
            }
        }
    }
    Ok(resources)
}

/// Thousandths of a core.
fn cpu(text: &str) -> Option<u64> {
    let text = text.trim();
    let millis = match text.strip_suffix('m') {
        Some(millis) => millis.parse().ok()?,
        None => decimal_millis(text)?,
    };
    (1..=CPU_MILLIS_MAX).contains(&millis).then_some(millis)
}

/// A decimal number in thousandths; finer digits round down.
fn decimal_millis(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let padded: String = fraction.chars().chain("000".chars()).take(3).collect();
    whole.checked_mul(1000)?.checked_add(padded.parse().ok()?)
}

/// Bytes.
fn memory(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        "ti" | "tib" => 1 << 40,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes > 0)
}

fn count(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_cores_or_millicores() {
        for (text, millis) in
            [("500m", 500), ("1", 1000), ("0.5", 500), ("1.25", 1250), (".5", 500), ("2.", 2000)]
        {
            assert_eq!(cpu(text), Some(millis), "{text}");
        }
        for text in ["", ".", "0", "-1", "1.x", "m", "1e3", "0.0001", "99999999999999999999", "∞"]
        {
            assert_eq!(cpu(text), None, "{text}");
        }
    }

    #[test]
    fn memory_is_a_whole_number_with_a_unit() {
        for (text, bytes) in [
            ("1024", 1024),
            ("64Ki", 65_536),
            ("512Mi", 536_870_912),
            ("2gi", 2_147_483_648),
            ("1k", 1000),
            ("3MB", 3_000_000),
            ("2G", 2_000_000_000),
        ] {
            assert_eq!(memory(text), Some(bytes), "{text}");
        }
        for text in ["", "0", "Mi", "1.5Gi", "-1Mi", "1Xi", "99999999Ti", "1 Mi"] {
            assert_eq!(memory(text), None, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_limited_is_refused_by_name() {
        for key in ["gpu", "disk", "nvidia.com/gpu"] {
            let limits = BTreeMap::from([(key.to_owned(), "1".to_owned())]);
            assert_eq!(read(&limits).unwrap_err().code(), "SANDBOX::INVALID_PARAMETER", "{key}");
        }
    }
}
