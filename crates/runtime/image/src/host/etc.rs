//! The `/etc` of the host image: an allowlist of host entries and a few fresh files.

use super::{
    accounts::ROOT,
    plan::{Item, Plan},
};
use crate::Error;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Entries of the host's `/etc` that installed programs read. None of them holds secrets on a
/// system in good order, and files that not everyone may read are left out in any case.
const ALLOWED: &[&str] = &[
    "adduser.conf",
    "alternatives",
    "bash.bashrc",
    "bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "deluser.conf",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "login.defs",
    "lsb-release",
    "magic",
    "magic.mime",
    "mime.types",
    "os-release",
    "pam.conf",
    "pam.d",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "profile",
    "profile.d/01-locale-fix.sh",
    "profile.d/bash_completion.sh",
    "profile.d/gawk.sh",
    "profile.d/lang.sh",
    "protocols",
    "rpc",
    "security",
    "services",
    "skel",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];

/// Families of entries named after versions.
const ALLOWED_PREFIXES: &[&str] = &["ImageMagick-", "java-", "python3"];

/// Files written the same on every host: path, mode, content.
const FRESH: &[(&str, u32, &str)] = &[
    ("environment", 0o644, ""),
    ("fstab", 0o644, ""),
    ("gitconfig", 0o644, "[init]\n\tdefaultBranch = main\n"),
    ("hostname", 0o644, "sandbox\n"),
    (
        "hosts",
        0o644,
        "127.0.0.1 localhost\n127.0.1.1 sandbox\n::1 localhost ip6-localhost ip6-loopback\n",
    ),
    ("machine-id", 0o444, ""),
    ("networks", 0o644, "default 0.0.0.0\nloopback 127.0.0.0\nlink-local 169.254.0.0\n"),
    (
        "nsswitch.conf",
        0o644,
        "passwd: files\ngroup: files\nshadow: files\ngshadow: files\nhosts: files dns\n\
         networks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n",
    ),
    ("resolv.conf", 0o644, ""),
    ("shells", 0o644, "/bin/sh\n/bin/bash\n/usr/bin/sh\n/usr/bin/bash\n"),
];

const SUDOERS: &str = "Defaults env_reset\nDefaults !fqdn\nDefaults lecture=never\n\
     Defaults secure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n\
     root ALL=(ALL:ALL) ALL\nuser ALL=(ALL) NOPASSWD:ALL\n";

/// Plans `/etc`.
pub(super) fn add(plan: &mut Plan) -> Result<(), Error> {
    let host = Path::new("/etc");
    for name in allowed(host) {
        for parent in parents(&name) {
            plan.add(Path::new("etc").join(parent), directory());
        }
        plan.copy(&host.join(&name), &Path::new("etc").join(&name), ROOT)?;
    }
    for (name, mode, content) in FRESH {
        plan.add(Path::new("etc").join(name), text(content, *mode));
    }
    plan.add("etc/mtab", Item::Link("/proc/mounts".into()));
    plan.add("etc/opt", directory());
    plan.add("etc/profile.d", directory());
    if Path::new("/usr/bin/sudo").exists() {
        plan.copy(&host.join("sudo.conf"), Path::new("etc/sudo.conf"), ROOT)?;
        plan.add("etc/sudoers", text(SUDOERS, 0o440));
        plan.add("etc/sudoers.d", directory());
    }
    Ok(())
}

/// Names below the host's `/etc` that are on the allowlist and exist.
fn allowed(host: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = ALLOWED.iter().map(PathBuf::from).collect();
    for entry in fs::read_dir(host).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let family = |prefix: &&str| name.to_string_lossy().starts_with(*prefix);
        if ALLOWED_PREFIXES.iter().any(family) {
            names.push(name.into());
        }
    }
    names.retain(|name| host.join(name).symlink_metadata().is_ok());
    names
}

/// Directories above a relative path, outermost first.
fn parents(name: &Path) -> Vec<&Path> {
    let mut parents: Vec<&Path> =
        name.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
    parents.reverse();
    parents
}

fn directory() -> Item {
    Item::Directory { mode: 0o755, owner: ROOT }
}

fn text(content: &str, mode: u32) -> Item {
    Item::Text { content: content.to_owned(), mode, owner: ROOT }
}
