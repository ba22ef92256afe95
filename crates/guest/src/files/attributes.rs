//! Small texts kept with a file, as extended attributes of the user's namespace.

use crate::{Error, Result};
use rustix::{
    fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr, getxattr, listxattr},
    io::Errno,
};
use std::{collections::BTreeMap, fs::File, path::Path};

/// The kernel's bound on the names of one file's attributes.
const NAMES_BYTES_MAX: usize = 64 * 1024;
const NAMES_BYTES_USUAL: usize = 256;
/// Values longer than this are not ours.
const VALUE_BYTES_MAX: usize = 4096;

/// Texts by name.
pub type Attributes = BTreeMap<String, String>;

/// The texts whose attribute names begin with `prefix`, which is left out. Follows links; a file
/// system without attributes has none.
pub fn attributes(path: &Path, prefix: &str) -> Attributes {
    let list = |buffer: &mut [u8]| listxattr(path, buffer);
    let get = |name: &str, buffer: &mut [u8]| getxattr(path, name, buffer);
    collect(prefix, list, get)
}

fn collect(
    prefix: &str,
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&str, &mut [u8]) -> rustix::io::Result<usize>,
) -> Attributes {
    // Most files have none, or few.
    let mut names = vec![0; NAMES_BYTES_USUAL];
    let listed = match list(&mut names) {
        Err(Errno::RANGE) => {
            names = vec![0; NAMES_BYTES_MAX];
            list(&mut names)
        }
        listed => listed,
    };
    let Ok(length @ 1..) = listed else { return Attributes::new() };
    let mut value = vec![0; VALUE_BYTES_MAX];
    let texts = names[..length].split(|byte| *byte == 0).filter_map(|name| {
        let name = std::str::from_utf8(name).ok()?;
        let key = name.strip_prefix(prefix)?;
        let length = get(name, &mut value).ok()?;
        Some((key.to_owned(), String::from_utf8_lossy(&value[..length]).into_owned()))
    });
    texts.collect()
}

/// Makes `wanted` all that a file has under `prefix`.
pub(super) fn replace_attributes(
    file: &File,
    path: &Path,
    prefix: &str,
    wanted: &Attributes,
) -> Result<()> {
    let failed = |error: Errno| Error::file("keep metadata of", path, error.into());
    let list = |buffer: &mut [u8]| flistxattr(file, buffer);
    let get = |name: &str, buffer: &mut [u8]| fgetxattr(file, name, buffer);
    for key in collect(prefix, list, get).keys().filter(|key| !wanted.contains_key(*key)) {
        fremovexattr(file, format!("{prefix}{key}")).map_err(failed)?;
    }
    for (key, value) in wanted {
        let name = format!("{prefix}{key}");
        fsetxattr(file, name, value.as_bytes(), XattrFlags::empty()).map_err(failed)?;
    }
    Ok(())
}
