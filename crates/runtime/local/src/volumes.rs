//! Folders from outside: the host's, where the operator allows it, and named volumes.

use std::io;
use std::path::{Path, PathBuf};

use atoll_core::{Error, Mount, MountSource, Result, Sandbox};

use crate::config::{Layout, LocalConfig};
use crate::protocol::Bind;

/// Refuses mounts that could never be made, before anything is stored.
pub(crate) fn check(config: &LocalConfig, layout: &Layout, sandbox: &Sandbox) -> Result<()> {
    for mount in &sandbox.spec.mounts {
        match &mount.source {
            MountSource::Host(path) => {
                allowed(config, Path::new(path))?;
            }
            MountSource::Volume { name, create, .. } => {
                let dir = layout.volume(sandbox.tenant.as_str(), name);
                if !create && !dir.is_dir() {
                    return Err(Error::not_found(format!("volume {name}"))
                        .with_reason("VOLUME_PVC_NOT_FOUND"));
                }
            }
        }
    }
    Ok(())
}

/// The mounts of a sandbox, their sources made where they may be.
pub(crate) fn binds(
    config: &LocalConfig,
    layout: &Layout,
    sandbox: &Sandbox,
) -> io::Result<Vec<Bind>> {
    sandbox.spec.mounts.iter().map(|mount| bind(config, layout, sandbox, mount)).collect()
}

/// Removes the volumes that were to go with the sandbox.
pub(crate) fn remove_owned(layout: &Layout, sandbox: &Sandbox) -> io::Result<()> {
    for mount in &sandbox.spec.mounts {
        if let MountSource::Volume { name, delete_with_sandbox: true, .. } = &mount.source {
            match std::fs::remove_dir_all(layout.volume(sandbox.tenant.as_str(), name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

fn bind(
    config: &LocalConfig,
    layout: &Layout,
    sandbox: &Sandbox,
    mount: &Mount,
) -> io::Result<Bind> {
    let source = match &mount.source {
        MountSource::Host(path) => {
            let path = allowed(config, Path::new(path)).map_err(io::Error::other)?;
            std::fs::create_dir_all(&path)?;
            path
        }
        MountSource::Volume { name, .. } => {
            let dir = layout.volume(sandbox.tenant.as_str(), name);
            std::fs::create_dir_all(&dir)?;
            dir
        }
    };
    let whole = source.canonicalize()?;
    let source = match &mount.sub_path {
        None => whole,
        Some(sub) => inside(&whole, sub)?,
    };
    Ok(Bind { source, target: mount.target.clone().into(), read_only: mount.read_only })
}

/// A folder below `whole`; links in it can't lead out.
fn inside(whole: &Path, sub: &str) -> io::Result<PathBuf> {
    let wanted = whole.join(sub);
    std::fs::create_dir_all(&wanted)?;
    let found = wanted.canonicalize()?;
    if found.starts_with(whole) {
        return Ok(found);
    }
    Err(io::Error::other(format!("the sub-path {sub} leads out of its volume")))
}

/// The host folder that is meant, if the operator allows it. What exists of it is resolved first,
/// so that a link can't point elsewhere.
fn allowed(config: &LocalConfig, path: &Path) -> Result<PathBuf> {
    let refused = || {
        let message = format!(
            "volumes: the host path {} is not allowed; the operator allows folders with \
             `allowed_host_paths`",
            path.display()
        );
        Error::new(atoll_core::ErrorKind::Invalid, message)
            .with_reason("VOLUME_HOST_PATH_NOT_ALLOWED")
    };
    let mut known = path.to_owned();
    let mut rest = Vec::new();
    let resolved = loop {
        match known.canonicalize() {
            Ok(found) => break found,
            Err(_) => match (known.file_name().map(ToOwned::to_owned), known.parent()) {
                (Some(name), Some(parent)) => {
                    rest.push(name);
                    known = parent.to_owned();
                }
                _ => return Err(refused()),
            },
        }
    };
    let full = rest.into_iter().rev().fold(resolved, |dir, name| dir.join(name));
    let inside =
        |allowed: &PathBuf| allowed.canonicalize().is_ok_and(|allowed| full.starts_with(allowed));
    if config.allowed_host_paths.iter().any(inside) { Ok(full) } else { Err(refused()) }
}
