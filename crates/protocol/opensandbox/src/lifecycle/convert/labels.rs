//! Labels follow the rules of Kubernetes, because clients of that runtime use the same.

use std::collections::BTreeMap;

use atoll_control::MetadataPatch;

use crate::lifecycle::error::ApiError;

/// Labels of one sandbox.
const LABELS_MAX: usize = 64;
const PREFIX_BYTES_MAX: usize = 253;
const PART_BYTES_MAX: usize = 63;
/// Belongs to the server.
const RESERVED_PREFIX: &str = "opensandbox.io/";

/// Checks the labels of a new sandbox.
pub(crate) fn check_new(labels: &BTreeMap<String, String>) -> Result<(), ApiError> {
    check_count(labels.len())?;
    for (key, value) in labels {
        if key.starts_with(RESERVED_PREFIX) {
            return Err(refused("SANDBOX::INVALID_METADATA_LABEL", &reserved(key)));
        }
        check(key, Some(value))?;
    }
    Ok(())
}

/// Checks changes to `present` labels.
pub(crate) fn check_patch(
    present: &BTreeMap<String, String>,
    patch: &MetadataPatch,
) -> Result<(), ApiError> {
    for (key, value) in patch {
        if key.starts_with(RESERVED_PREFIX) {
            // The reference server leaves its usual prefix out here; clients may compare.
            return Err(refused("INVALID_METADATA_LABEL", &reserved(key)));
        }
        check(key, value.as_deref())?;
    }
    let kept = present.keys().filter(|key| !patch.contains_key(*key)).count();
    check_count(kept + patch.values().flatten().count())
}

fn check(key: &str, value: Option<&str>) -> Result<(), ApiError> {
    let name = match key.rsplit_once('/') {
        Some((prefix, name)) if is_subdomain(prefix) => name,
        Some(_) => return Err(bad_key(key)),
        None => key,
    };
    if name.is_empty() || !is_part(name) {
        return Err(bad_key(key));
    }
    if value.is_some_and(|value| !value.is_empty() && !is_part(value)) {
        return Err(refused(
            "SANDBOX::INVALID_METADATA_LABEL",
            &format!(
                "metadata: the value of {key:?} must be empty or at most 63 of letters, digits, \
                 '-', '_' and '.', beginning and ending with a letter or digit"
            ),
        ));
    }
    Ok(())
}

fn check_count(count: usize) -> Result<(), ApiError> {
    if count <= LABELS_MAX {
        return Ok(());
    }
    let message = format!("metadata: a sandbox has at most {LABELS_MAX} labels, not {count}");
    Err(refused("SANDBOX::INVALID_METADATA_LABEL", &message))
}

/// `[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?`, at most 63.
fn is_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    text.len() <= PART_BYTES_MAX
        && ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// Lower-case DNS labels joined by dots, at most 253.
fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        [bytes.first(), bytes.last()].iter().all(|end| end.is_some_and(alphanumeric))
            && bytes.iter().all(|b| alphanumeric(b) || *b == b'-')
    };
    text.len() <= PREFIX_BYTES_MAX && text.split('.').all(is_label)
}

fn bad_key(key: &str) -> ApiError {
    let shown: String = key.chars().take(80).collect();
    refused(
        "SANDBOX::INVALID_METADATA_LABEL",
        &format!(
            "metadata: the key {shown:?} must be a name of at most 63 letters, digits, '-', '_' \
             and '.', with an optional lower-case DNS prefix and '/' before it"
        ),
    )
}

fn reserved(key: &str) -> String {
    format!("metadata: {key:?} begins with the reserved {RESERVED_PREFIX}; choose another prefix")
}

fn refused(code: &'static str, message: &str) -> ApiError {
    ApiError::bad_request(code, message.to_owned())
}
