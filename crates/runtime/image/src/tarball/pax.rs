//! Extended header records: `<length> <key>=<value>\n`, where values may hold any byte.

use super::ReadError;
use std::collections::BTreeMap;

const XATTR_PREFIX: &str = "SCHILY.xattr.";

/// Records that override fields of a header.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    records: BTreeMap<String, Vec<u8>>,
}

impl Extensions {
    /// Adds the records of one extended header; later ones win.
    pub(super) fn add_pax(&mut self, mut bytes: &[u8]) -> Result<(), ReadError> {
        while !bytes.is_empty() {
            let (key, value, rest) = split_record(bytes)
                .ok_or_else(|| ReadError::Malformed("an extended header is damaged".into()))?;
            self.records.insert(key.to_owned(), value.to_vec());
            bytes = rest;
        }
        Ok(())
    }

    pub(super) fn set_path(&mut self, name: Vec<u8>) {
        self.records.insert("path".into(), without_nul(name));
    }

    pub(super) fn set_link(&mut self, name: Vec<u8>) {
        self.records.insert("linkpath".into(), without_nul(name));
    }

    pub(super) fn path(&self) -> Option<Vec<u8>> {
        self.records.get("path").cloned()
    }

    pub(super) fn link(&self) -> Option<Vec<u8>> {
        self.records.get("linkpath").cloned()
    }

    pub(super) fn size(&self) -> Option<u64> {
        self.number("size")
    }

    pub(super) fn uid(&self) -> Option<u64> {
        self.number("uid")
    }

    pub(super) fn gid(&self) -> Option<u64> {
        self.number("gid")
    }

    /// Seconds and nanoseconds; fractions of times before 1970 are dropped.
    pub(super) fn mtime(&self) -> Option<(i64, u32)> {
        let text = std::str::from_utf8(self.records.get("mtime")?).ok()?;
        let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
        let seconds: i64 = seconds.parse().ok()?;
        let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
        let nanos = if seconds < 0 { 0 } else { digits.parse().ok()? };
        Some((seconds, nanos))
    }

    pub(super) fn is_sparse(&self) -> bool {
        self.records.keys().any(|key| key.starts_with("GNU.sparse."))
    }

    pub(super) fn into_xattrs(self) -> Vec<(String, Vec<u8>)> {
        let named = |(key, value): (String, Vec<u8>)| {
            key.strip_prefix(XATTR_PREFIX).map(|name| (name.to_owned(), value))
        };
        self.records.into_iter().filter_map(named).collect()
    }

    fn number(&self, key: &str) -> Option<u64> {
        std::str::from_utf8(self.records.get(key)?).ok()?.parse().ok()
    }
}

fn without_nul(mut name: Vec<u8>) -> Vec<u8> {
    if let Some(end) = name.iter().position(|byte| *byte == 0) {
        name.truncate(end);
    }
    name
}

fn split_record(bytes: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let space = bytes.iter().take(21).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    let key = std::str::from_utf8(&record[..equals]).ok()?;
    Some((key, &record[equals + 1..], &bytes[length..]))
}
