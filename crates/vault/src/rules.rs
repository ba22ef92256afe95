//! What a secret may look like, and how many there may be.

use std::collections::BTreeMap;

use atoll_core::{Error, Result};

const NAME_BYTES_MAX: usize = 128;
const METADATA_ENTRIES_MAX: usize = 32;
const METADATA_KEY_BYTES_MAX: usize = 128;
const METADATA_VALUE_BYTES_MAX: usize = 1024;
const METADATA_BYTES_MAX: usize = 8192;

/// Begins every id, so that no name can be taken for one.
pub(crate) const ID_PREFIX: &str = "sec_";

/// The operator's bounds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Secrets of one tenant.
    pub secrets_per_tenant_max: usize,
    /// Bytes of one value.
    pub value_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { secrets_per_tenant_max: 1000, value_bytes_max: 64 * 1024 }
    }
}

/// A name as it is stored: lower case.
pub(crate) fn name(text: &str) -> Result<String> {
    let name = text.to_lowercase();
    let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
    if !fits || name.chars().any(|c| c.is_control() || "{}/".contains(c)) {
        return Err(Error::invalid(
            "name",
            format!(
                "write 1 to {NAME_BYTES_MAX} bytes without '{{', '}}', '/' and control characters"
            ),
        ));
    }
    if name.starts_with(ID_PREFIX) {
        return Err(Error::invalid("name", format!("{ID_PREFIX} begins ids; choose another name")));
    }
    Ok(name)
}

pub(crate) fn check_value(limits: &Limits, value: &str) -> Result<()> {
    if (1..=limits.value_bytes_max).contains(&value.len()) {
        return Ok(());
    }
    Err(Error::invalid("value", format!("write 1 to {} bytes", limits.value_bytes_max)))
}

pub(crate) fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<()> {
    let total: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    let fits = |(key, value): (&String, &String)| {
        (1..=METADATA_KEY_BYTES_MAX).contains(&key.len()) && value.len() <= METADATA_VALUE_BYTES_MAX
    };
    let all = metadata.len() <= METADATA_ENTRIES_MAX && total <= METADATA_BYTES_MAX;
    if all && metadata.iter().all(fits) {
        return Ok(());
    }
    Err(Error::invalid(
        "metadata",
        format!(
            "at most {METADATA_ENTRIES_MAX} entries with keys of 1 to {METADATA_KEY_BYTES_MAX} \
             bytes, values of up to {METADATA_VALUE_BYTES_MAX}, {METADATA_BYTES_MAX} in all"
        ),
    ))
}
