//! System packages: installed when we may, named when we may not.

use anyhow::{Result, bail};

use crate::command::{find, is_root, program, run};

/// A program and the Debian package that brings it.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// Name on PATH, or an absolute path when only that place counts; or a Python and a module
    /// that it must have, with a space between.
    pub program: &'static str,
    /// Debian package.
    pub package: &'static str,
}

const fn need(program: &'static str, package: &'static str) -> Need {
    Need { program, package }
}

/// What a server uses; the last two for making the image `code-interpreter`.
pub(crate) const SERVE: &[Need] = &[need("nft", "nftables"), need("npm", "npm"), PYTHON_VENV];

const PYTHON_VENV: Need = need("/usr/bin/python3 ensurepip", "python3-venv");

/// What the tests use besides. `/usr/bin` counts where the `base` image shows the host's `/usr`.
pub(crate) const TEST: &[Need] = &[
    need("nft", "nftables"),
    need("runc", "runc"),
    need("crun", "crun"),
    need("runsc", "runsc"),
    need("docker-registry", "docker-registry"),
    need("busybox", "busybox-static"),
    need("ip", "iproute2"),
    need("unshare", "util-linux"),
    need("tar", "tar"),
    need("g++", "g++"),
    need("npm", "npm"),
    PYTHON_VENV,
    need("/usr/bin/bash", "bash"),
    need("/usr/bin/sudo", "sudo"),
    need("/usr/bin/curl", "curl"),
    need("/usr/bin/git", "git"),
    need("/usr/bin/python3", "python3"),
];

/// What the benchmark compares with.
pub(crate) const BENCH: &[Need] =
    &[need("nft", "nftables"), need("runc", "runc"), need("crun", "crun"), BUSYBOX];

const BUSYBOX: Need = need("busybox", "busybox-static");

/// Makes the needs present, or says what is missing.
pub(crate) fn ensure(needs: &[Need]) -> Result<()> {
    let mut missing: Vec<&str> =
        needs.iter().filter(|n| !is_present(n.program)).map(|n| n.package).collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !is_root() || find("apt-get").is_none() {
        bail!("programs are missing; install these packages as root: {list}");
    }
    install(&missing)?;
    if let Some(still) = needs.iter().find(|n| !is_present(n.program)) {
        bail!("the package {} is installed but brought no {}", still.package, still.program);
    }
    Ok(())
}

/// Installs Debian packages; the lists are refreshed only when the first try fails.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let arguments = ["install", "--yes", "--no-install-recommends"];
    let install = || {
        let mut command = program("apt-get", arguments.iter().chain(packages));
        run(command.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    if install().is_ok() {
        return Ok(());
    }
    run(&mut program("apt-get", ["update"]))?;
    install()
}

fn is_present(program: &str) -> bool {
    if let Some((python, module)) = program.split_once(' ') {
        let mut import = std::process::Command::new(python);
        import.args(["-c", &format!("import {module}")]).stderr(std::process::Stdio::null());
        return import.status().is_ok_and(|status| status.success());
    }
    if program.starts_with('/') {
        return std::path::Path::new(program).is_file();
    }
    find(program).is_some()
}
