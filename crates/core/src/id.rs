//! Names of things. Each kind is its own type, so that one can't be passed for another.

use std::fmt;

use crate::error::{Error, Result};

/// Longest id we accept from anyone, in bytes; a DNS label with a port prefix still fits.
const ID_BYTES_MAX: usize = 48;

/// Lower-case letters and digits only: hosts such as `8080-<id>.example` split on the dash.
fn checked(kind: &str, text: &str) -> Result<String> {
    let fits = !text.is_empty() && text.len() <= ID_BYTES_MAX;
    if fits && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
        return Ok(text.to_owned());
    }
    Err(Error::invalid(kind, format!("is not {kind} id: use 1 to {ID_BYTES_MAX} of a-z and 0-9")))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Reads an id, refusing anything that could mean something to a path or a host name.
            pub fn parse(text: &str) -> Result<Self> {
                checked($kind, text).map(Self)
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// Names one sandbox.
    SandboxId,
    "a sandbox"
);
id!(
    /// Names one snapshot.
    SnapshotId,
    "a snapshot"
);
id!(
    /// Names one tenant: everything a tenant makes is invisible to every other.
    TenantId,
    "a tenant"
);

#[cfg(test)]
mod tests {
    use super::SandboxId;

    #[test]
    fn only_lower_case_letters_and_digits_are_ids() {
        assert!(SandboxId::parse("0abc9").is_ok());
        for bad in ["", "A", "a-b", "../x", "a/b", "a.b", &"a".repeat(49), "ä"] {
            assert!(SandboxId::parse(bad).is_err(), "{bad:?} must be refused");
        }
    }
}
