//! `[namespace/]name[:tag]`.

use atoll_core::{Error, ErrorKind, Result};

use crate::ids;

/// The tag that is meant when none is named.
pub(crate) const DEFAULT_TAG: &str = "default";
const PART_CHARS_MAX: usize = 128;

/// How a template is named from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Whose it is; the caller's own or a built-in one when absent.
    pub namespace: Option<String>,
    /// Its name, or its id.
    pub name: String,
    /// Which of its builds; `None` stands for the tag `default`.
    pub tag: Option<String>,
}

impl Reference {
    /// Reads a reference; upper case means the same as lower case.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim().to_ascii_lowercase();
        let (path, tag) = match text.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (text.as_str(), None),
        };
        let (namespace, name) = match path.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, path),
        };
        let fits = namespace.is_none_or(is_name) && is_name(name) && tag.is_none_or(is_tag);
        if !fits {
            return Err(refused(&text));
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            tag: tag.filter(|tag| *tag != DEFAULT_TAG).map(str::to_owned),
        })
    }

    /// The tag, `default` when none was named.
    pub fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or(DEFAULT_TAG)
    }
}

/// Reads a tag.
///
/// # Errors
/// `Invalid` for what can't be one.
pub(crate) fn tag(text: &str) -> Result<String> {
    let tag = text.trim().to_ascii_lowercase();
    if is_tag(&tag) {
        return Ok(tag);
    }
    let problem = format!(
        "'{}' is no tag: use 1 to {PART_CHARS_MAX} of a-z, 0-9, '-', '_' and '.', but no UUID",
        shown(&tag)
    );
    Err(Error::invalid("tags", problem))
}

fn is_name(text: &str) -> bool {
    is_made_of(text, |b| matches!(b, b'-' | b'_'))
}

fn is_tag(text: &str) -> bool {
    is_made_of(text, |b| matches!(b, b'-' | b'_' | b'.')) && !ids::is_uuid(text)
}

fn is_made_of(text: &str, also: impl Fn(u8) -> bool) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=PART_CHARS_MAX).contains(&text.len()) && text.bytes().all(|b| plain(b) || also(b))
}

fn refused(text: &str) -> Error {
    let message = format!(
        "Invalid template reference '{}': write [namespace/]name[:tag] with a-z, 0-9, '-' and '_'",
        shown(text)
    );
    Error::new(ErrorKind::Invalid, message)
}

/// What a stranger wrote, fit for a message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests;
