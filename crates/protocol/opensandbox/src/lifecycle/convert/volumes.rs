//! Volumes: names, paths, and which folders of the host a client may ask for.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use atoll_core::{Mount, MountSource};

use crate::lifecycle::error::ApiError;
use crate::lifecycle::state::DoorConfig;
use crate::lifecycle::wire::{Backend, Volume};

/// Volumes of one sandbox.
const VOLUMES_MAX: usize = 32;
/// Longest path, as the kernel has it.
const PATH_BYTES_MAX: usize = 4095;

/// Turns volumes into mounts.
pub(super) fn read(config: &DoorConfig, volumes: &[Volume]) -> Result<Vec<Mount>, ApiError> {
    if volumes.len() > VOLUMES_MAX {
        return Err(ApiError::invalid("volumes", format!("at most {VOLUMES_MAX} are allowed")));
    }
    let mut names = BTreeSet::new();
    volumes
        .iter()
        .map(|volume| {
            if !names.insert(volume.name.as_str()) {
                return Err(refused("DUPLICATE_NAME", volume, "names must differ"));
            }
            mount(config, volume)
        })
        .collect()
}

fn mount(config: &DoorConfig, volume: &Volume) -> Result<Mount, ApiError> {
    if !is_dns_name(&volume.name, 63, false) {
        let problem = "name must be a DNS label: at most 63 of a-z, 0-9 and '-'";
        return Err(refused("INVALID_NAME", volume, problem));
    }
    if !is_clean_absolute(&volume.mount_path) || volume.mount_path == "/" {
        let problem = "mountPath must be an absolute path other than /, without '..'";
        return Err(refused("INVALID_MOUNT_PATH", volume, problem));
    }
    if volume.sub_path.as_deref().is_some_and(|path| !is_clean_relative(path)) {
        let problem = "subPath must be a relative path without '..'";
        return Err(refused("INVALID_SUB_PATH", volume, problem));
    }
    let [backend] = volume.backends.as_slice() else {
        let problem = "give exactly one of host and pvc";
        return Err(refused("INVALID_BACKEND", volume, problem));
    };
    Ok(Mount {
        name: volume.name.clone(),
        source: source(config, volume, backend)?,
        target: volume.mount_path.clone(),
        sub_path: volume.sub_path.clone().filter(|path| !path.is_empty()),
        read_only: volume.read_only,
    })
}

fn source(
    config: &DoorConfig,
    volume: &Volume,
    backend: &Backend,
) -> Result<MountSource, ApiError> {
    match backend {
        Backend::Host { path } => {
            if !is_clean_absolute(path) {
                let problem = "host.path must be an absolute path without '..'";
                return Err(refused("INVALID_HOST_PATH", volume, problem));
            }
            if !config.allowed_host_paths.iter().any(|allowed| Path::new(path).starts_with(allowed))
            {
                let problem = "host.path is not below a folder that the operator allows \
                               (runtime.allowed_host_paths)";
                return Err(refused("HOST_PATH_NOT_ALLOWED", volume, problem));
            }
            Ok(MountSource::Host(path.clone()))
        }
        Backend::Claim { name, create, delete_with_sandbox } => {
            if !is_dns_name(name, 253, true) {
                let problem = "pvc.claimName must be a lower-case DNS name of at most 253";
                return Err(refused("INVALID_PVC_NAME", volume, problem));
            }
            Ok(MountSource::Volume {
                name: name.clone(),
                create: *create,
                delete_with_sandbox: *delete_with_sandbox,
            })
        }
        Backend::ObjectStore => {
            let problem = "ossfs is not available here; use host or pvc";
            Err(refused("UNSUPPORTED_BACKEND", volume, problem))
        }
    }
}

fn is_dns_name(text: &str, bytes_max: usize, dots: bool) -> bool {
    let bytes = text.as_bytes();
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= bytes_max
        && [bytes.first(), bytes.last()].iter().all(|end| end.is_some_and(alphanumeric))
        && bytes.iter().all(|b| alphanumeric(b) || *b == b'-' || (dots && *b == b'.'))
}

fn is_clean_absolute(path: &str) -> bool {
    let parts = Path::new(path).components();
    path.starts_with('/')
        && path.len() <= PATH_BYTES_MAX
        && !path.contains('\0')
        && parts.clone().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

fn is_clean_relative(path: &str) -> bool {
    path.len() <= PATH_BYTES_MAX
        && !path.contains('\0')
        && Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn refused(code: &str, volume: &Volume, problem: &str) -> ApiError {
    let shown: String = volume.name.chars().take(80).collect();
    ApiError::bad_request(format!("VOLUME::{code}"), format!("volumes: {shown:?}: {problem}"))
}
