//! Folders from outside: the host's, where the operator allows it, and named volumes.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use atoll_core::{Error, Mount, MountSource, Result, Sandbox};

use crate::config::{Layout, LocalConfig};
use crate::protocol::Bind;

mod content;
mod registry;
mod seam;

pub(crate) use registry::Registry;

/// Places inside that a volume would take from the sandbox itself.
const TAKEN: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Refuses mounts that could never be made, before anything is stored.
pub(crate) fn check(config: &LocalConfig, layout: &Layout, sandbox: &Sandbox) -> Result<()> {
    let mut new = BTreeSet::new();
    for mount in &sandbox.spec.mounts {
        check_target(&mount.target)?;
        match &mount.source {
            MountSource::Host(path) => {
                let (root, below) = allowed(config, Path::new(path))?;
                let below = below.join(mount.sub_path.as_deref().unwrap_or_default());
                check_links(&root, &below, "VOLUME_HOST_PATH_NOT_ALLOWED")?;
            }
            MountSource::Volume { name, create, .. } => {
                let dir = layout.volume(sandbox.tenant.as_str(), name);
                if !create && !dir.is_dir() {
                    return Err(Error::not_found(format!("volume {name}"))
                        .with_reason("VOLUME_PVC_NOT_FOUND"));
                }
                if !dir.is_dir() {
                    new.insert(name);
                }
                let below = mount.sub_path.as_deref().unwrap_or_default();
                check_links(&dir, Path::new(below), "VOLUME_INVALID_SUB_PATH")?;
            }
        }
    }
    registry::check_room(layout, sandbox.tenant.as_str(), new.len())
}

/// The mounts of a sandbox; named volumes are made where they aren't there yet.
pub(crate) fn binds(
    config: &LocalConfig,
    registry: &Registry,
    sandbox: &Sandbox,
) -> io::Result<Vec<Bind>> {
    sandbox.spec.mounts.iter().map(|mount| bind(config, registry, sandbox, mount)).collect()
}

/// Makes ready for volumes, after whatever an earlier server was doing.
pub(crate) fn open(layout: &Layout) -> io::Result<Registry> {
    content::clear_drafts(layout)?;
    Registry::open(layout)
}

/// Removes the volumes that were to go with the sandbox. Another sandbox that has mounted one sees
/// it become empty: whoever shares a volume must not let it go with one of its users.
pub(crate) fn remove_owned(registry: &Registry, sandbox: &Sandbox) -> io::Result<()> {
    for mount in &sandbox.spec.mounts {
        if let MountSource::Volume { name, delete_with_sandbox: true, .. } = &mount.source {
            registry.throw_owned(&sandbox.tenant, name)?;
        }
    }
    Ok(())
}

fn bind(
    config: &LocalConfig,
    registry: &Registry,
    sandbox: &Sandbox,
    mount: &Mount,
) -> io::Result<Bind> {
    let (root, mut below) = match &mount.source {
        MountSource::Host(path) => allowed(config, Path::new(path)).map_err(io::Error::other)?,
        MountSource::Volume { name, .. } => {
            let dir = registry.mounted(&sandbox.tenant, name)?;
            (dir, PathBuf::new())
        }
    };
    below.extend(mount.sub_path.as_ref());
    if !is_plain(&below) {
        return Err(io::Error::other(format!("{} leads out of its volume", below.display())));
    }
    let (target, read_only) = (mount.target.clone().into(), mount.read_only);
    Ok(Bind { root, below, target, read_only })
}

/// Says early what the mount would refuse; what counts is the walk when it is mounted.
fn check_links(root: &Path, below: &Path, reason: &'static str) -> Result<()> {
    let mut place = root.to_owned();
    for part in below.components() {
        place.push(part);
        if place.is_symlink() {
            let problem =
                format!("{} leads through a link; name the folder itself", below.display());
            return Err(Error::invalid("volumes", problem).with_reason(reason));
        }
    }
    Ok(())
}

/// Names only: nothing that leads up or begins anew.
fn is_plain(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

fn check_target(target: &str) -> Result<()> {
    let refused = || {
        let problem = format!(
            "{target} can't be a mount point: choose a folder that is not /, /proc, /sys or /dev"
        );
        Error::invalid("volumes", problem).with_reason("VOLUME_INVALID_MOUNT_PATH")
    };
    let below = Path::new(target).strip_prefix("/").map_err(|_| refused())?;
    let names = below.components().filter(|part| *part != Component::CurDir);
    let plain = Path::new("/").join(names.clone().collect::<PathBuf>());
    let taken = TAKEN.iter().any(|taken| plain.starts_with(taken));
    if taken || plain == Path::new("/") || !is_plain(&names.collect::<PathBuf>()) {
        return Err(refused());
    }
    Ok(())
}

/// The folder that the operator allows and what is meant below it. Only the operator's part is
/// resolved here; the rest belongs to tenants and is walked without links when it is mounted.
fn allowed(config: &LocalConfig, path: &Path) -> Result<(PathBuf, PathBuf)> {
    for folder in &config.allowed_host_paths {
        let Ok(real) = folder.canonicalize() else { continue };
        let below = path.strip_prefix(folder).or_else(|_| path.strip_prefix(&real));
        if let Some(below) = below.ok().filter(|below| is_plain(below)) {
            return Ok((real, below.to_owned()));
        }
    }
    let message = format!(
        "volumes: the host path {} is not allowed; the operator allows folders with \
         `allowed_host_paths`",
        path.display()
    );
    let refused = Error::new(atoll_core::ErrorKind::Invalid, message);
    Err(refused.with_reason("VOLUME_HOST_PATH_NOT_ALLOWED"))
}

#[cfg(test)]
mod tests {
    use super::check_target;

    #[test]
    fn a_volume_takes_nothing_from_the_sandbox_itself() {
        for good in ["/data", "/srv/a/b", "/procession", "/mnt/./x"] {
            assert!(check_target(good).is_ok(), "{good}");
        }
        for bad in
            ["/", "//", "/.", "/proc", "/proc/bus", "//proc", "/./sys", "/dev/", "/a/../proc", "a"]
        {
            assert!(check_target(bad).is_err(), "{bad}");
        }
    }
}
