//! A path within a volume.

use std::ffi::{OsStr, OsString};
use std::fmt;

use atoll_core::{Error, Result};
use rustix::io::Errno;

/// Longest path and longest name, as the kernel has them.
const PATH_BYTES_MAX: usize = 4095;
const NAME_BYTES_MAX: usize = 255;

/// A path without `.`, `..` and empty names; none at all is the volume itself.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::volumes) struct Place(Vec<OsString>);

impl Place {
    /// Reads a path as a client wrote it.
    pub(super) fn parse(path: &str) -> Result<Self> {
        let refused = |problem: &str| Err(Error::invalid("path", problem));
        if path.is_empty() {
            return refused("is empty; use an absolute path such as /folder/file");
        }
        if path.len() > PATH_BYTES_MAX {
            return refused("is too long; at most 4095 bytes are possible");
        }
        if path.contains('\0') {
            return refused("has a zero byte; leave it out");
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.contains(&"..") {
            return refused("has '..'; name the place from the volume's root");
        }
        if parts.iter().any(|part| part.len() > NAME_BYTES_MAX) {
            return refused("has a name that is too long; at most 255 bytes are possible");
        }
        Ok(Self(parts.into_iter().map(OsString::from).collect()))
    }

    pub(super) fn parts(&self) -> &[OsString] {
        &self.0
    }

    /// The folder and the name in it; nothing for the volume itself.
    pub(super) fn split(&self) -> Option<(&[OsString], &OsStr)> {
        self.0.split_last().map(|(name, parents)| (parents, name.as_os_str()))
    }

    /// The last name.
    pub(super) fn name(&self) -> String {
        self.0.last().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// What is at `name` in here.
    pub(super) fn below(&self, name: &OsStr) -> Self {
        Self(self.0.iter().cloned().chain([name.to_owned()]).collect())
    }

    /// Says what was done when the kernel refused.
    pub(super) fn failed(&self, doing: &'static str) -> impl FnOnce(Errno) -> Error + '_ {
        move |error| super::explain(doing, self, error)
    }

    /// Something is there already.
    pub(in crate::volumes) fn exists(&self) -> Error {
        Error::conflict(format!("{self} exists already; use force to write over it"))
            .with_reason("ALREADY_EXISTS")
    }

    /// Nothing is there.
    pub(in crate::volumes) fn missing(&self) -> Error {
        super::explain("removing", self, Errno::NOENT)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        self.0.iter().try_for_each(|part| write!(f, "/{}", part.to_string_lossy()))
    }
}
