//! Volumes that a sandbox shows.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use atoll_core::{Mount, MountSource};

use crate::lifecycle::error::ApiError;
use crate::lifecycle::wire::VolumeMount;

/// Volumes of one sandbox.
const MOUNTS_MAX: usize = 32;
/// Longest path, as the kernel has it.
const PATH_BYTES_MAX: usize = 4095;

/// A mount and the member of the request that asked for it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) field: String,
    pub(crate) mount: Mount,
}

/// Turns `volumeMounts` into mounts.
pub(super) fn from_wire(mounts: &[VolumeMount]) -> Result<Vec<Asked>, ApiError> {
    let mounts = mounts.iter().enumerate();
    mounts
        .map(|(index, mount)| {
            let field = format!("volumeMounts[{index}]");
            named_volume(&field, &mount.name, &mount.path, None, false)
        })
        .collect()
}

/// One volume of the caller's, which must exist.
pub(super) fn named_volume(
    field: &str,
    volume: &str,
    path: &str,
    sub_path: Option<&str>,
    read_only: bool,
) -> Result<Asked, ApiError> {
    if !is_clean_absolute(path) || path == "/" {
        let problem = "must be an absolute path other than /, without '..', '.' and '//'";
        return Err(ApiError::invalid(&format!("{field}.path"), problem));
    }
    let sub_path = sub_path.map(|path| path.trim_start_matches('/')).filter(|p| !p.is_empty());
    if sub_path.is_some_and(|path| !is_clean_relative(path)) {
        let problem = "must be a path within the volume, without '..'";
        return Err(ApiError::invalid(&format!("{field}.subPath"), problem));
    }
    let source =
        MountSource::Volume { name: volume.to_owned(), create: false, delete_with_sandbox: false };
    let (target, sub_path) = (path.to_owned(), sub_path.map(str::to_owned));
    let mount = Mount { name: String::new(), source, target, sub_path, read_only };
    Ok(Asked { field: field.to_owned(), mount })
}

/// Refuses two volumes in one place.
pub(super) fn check_unique(mounts: &[Asked]) -> Result<(), ApiError> {
    if mounts.len() > MOUNTS_MAX {
        return Err(ApiError::invalid("volumeMounts", format!("at most {MOUNTS_MAX} are allowed")));
    }
    let mut seen = BTreeSet::new();
    match mounts.iter().find(|asked| !seen.insert(asked.mount.target.as_str())) {
        None => Ok(()),
        Some(twice) => {
            let problem = format!("{:?} is used twice; paths must differ", twice.mount.target);
            Err(ApiError::invalid(&twice.field, problem))
        }
    }
}

/// The mounts, each with a name of its own.
pub(super) fn named(asked: Vec<Asked>) -> impl Iterator<Item = Mount> {
    let asked = asked.into_iter().enumerate();
    asked.map(|(index, asked)| Mount { name: format!("volume-{index}"), ..asked.mount })
}

fn is_clean_absolute(path: &str) -> bool {
    let parts = Path::new(path).components();
    let clean: std::path::PathBuf = parts.clone().collect();
    path.starts_with('/')
        && path.len() <= PATH_BYTES_MAX
        && !path.contains('\0')
        && parts.clone().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        && clean.as_os_str() == path
}

fn is_clean_relative(path: &str) -> bool {
    path.len() <= PATH_BYTES_MAX
        && !path.contains('\0')
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
