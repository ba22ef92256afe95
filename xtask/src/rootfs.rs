//! A root file system of one static program: busybox and its many names.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, Result};

use crate::command::{find, output, program};

/// Fills `root` with busybox, users and the usual empty folders.
pub(crate) fn busybox(root: &Path) -> Result<()> {
    let busybox = find("busybox").context("busybox is missing; install busybox-static")?;
    for folder in ["bin", "etc", "root", "tmp", "proc", "sys", "dev", "run"] {
        let path = root.join(folder);
        fs::create_dir_all(&path).with_context(|| format!("can't create {}", path.display()))?;
    }
    fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777))?;
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\n")?;
    fs::copy(&busybox, root.join("bin/busybox")).context("can't copy busybox")?;
    for name in output(&mut program(&busybox, ["--list"]))?.lines() {
        if name != "busybox" && !name.contains('/') {
            symlink("busybox", root.join("bin").join(name))
                .with_context(|| format!("can't link {name}"))?;
        }
    }
    Ok(())
}
