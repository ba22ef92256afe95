//! Does this machine have what sandboxes need? One table, with what to do about each gap.

use std::path::PathBuf;

use crate::cgroup::Layout;

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Something won't work, but sandboxes do.
    Limited,
    /// No sandbox can be made.
    Missing,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do; empty when all is well.
    pub remedy: &'static str,
}

/// Looks at everything.
pub fn check() -> Vec<Check> {
    vec![privileges(), kernel(), overlay(), groups(), users(), networks(), firewall(), oci()]
}

/// What makes sandboxes impossible, a line each.
pub(crate) fn obstacles() -> Vec<String> {
    let missing = check().into_iter().filter(|check| check.verdict == Verdict::Missing);
    missing.map(|c| format!("  {}: {}. {}", c.name, c.found, c.remedy)).collect()
}

/// Why an OCI runtime can't be used here; nothing when it can.
pub(crate) fn why_not(program: &str) -> Option<&'static str> {
    let name = std::path::Path::new(program).file_name().unwrap_or_default();
    // Sandboxes are reached through a socket that is handed to their first process.
    if name == "runsc" || name.to_string_lossy().starts_with("kata") {
        return Some("it does not hand open sockets to a sandbox; use native, runc or crun");
    }
    match find_program(program) {
        Some(_) => None,
        None => Some("it is not installed; install it, or use native"),
    }
}

/// Where a program is, if it is installed.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(usual.split(':')).filter(|dir| !dir.is_empty());
    folders.map(|dir| PathBuf::from(dir).join(name)).find(|path| path.is_file())
}

fn verdict(good: bool, otherwise: Verdict) -> Verdict {
    if good { Verdict::Good } else { otherwise }
}

fn privileges() -> Check {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    /// CHOWN, SETUID, NET_ADMIN and SYS_ADMIN.
    const NEEDED: u64 = 1 | 1 << 7 | 1 << 12 | 1 << 21;
    let good = capabilities & NEEDED == NEEDED;
    let found = if good { "root" } else { "an ordinary user" };
    Check {
        name: "privileges",
        verdict: verdict(good, Verdict::Missing),
        found: found.into(),
        remedy: if good { "" } else { "Run the server as root: sudo atoll serve" },
    }
}

fn kernel() -> Check {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // Overlays over id-mapped layers came with 5.19.
    let good = version >= (5, 19);
    Check {
        name: "kernel",
        verdict: verdict(good, Verdict::Missing),
        found: release.trim().to_owned(),
        remedy: if good { "" } else { "Linux 5.19 or later is needed: upgrade the kernel" },
    }
}

fn overlay() -> Check {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let good = known.lines().any(|line| line.ends_with("\toverlay"));
    Check {
        name: "overlayfs",
        verdict: verdict(good, Verdict::Missing),
        found: if good { "there" } else { "not known to the kernel" }.into(),
        remedy: if good { "" } else { "Load it: modprobe overlay" },
    }
}

fn groups() -> Check {
    let layout = Layout::detect().ok();
    let usable = layout.as_ref().is_some_and(|l| l.describe() != "none");
    let missing = layout.as_ref().map(Layout::missing).unwrap_or_default();
    let found = layout.map_or("none", |l| l.describe()).to_owned();
    Check {
        name: "cgroups",
        verdict: if !usable {
            Verdict::Missing
        } else {
            verdict(missing.is_empty(), Verdict::Limited)
        },
        found: if missing.is_empty() {
            found
        } else {
            format!("{found}, no limits for {}", missing.join(", "))
        },
        remedy: match (usable, missing.is_empty()) {
            (false, _) => "Mount cgroup2: mount -t cgroup2 none /sys/fs/cgroup",
            (true, false) => "Enable the controllers at boot (cgroup_enable=memory)",
            (true, true) => "",
        },
    }
}

fn users() -> Check {
    let read = |path| std::fs::read_to_string(path).ok().and_then(|t| t.trim().parse::<u64>().ok());
    let most = read("/proc/sys/user/max_user_namespaces").unwrap_or(0);
    Check {
        name: "user namespaces",
        verdict: verdict(most > 0, Verdict::Missing),
        found: format!("at most {most}"),
        remedy: if most > 0 { "" } else { "Allow them: sysctl user.max_user_namespaces=15000" },
    }
}

fn networks() -> Check {
    let good = std::path::Path::new("/proc/self/ns/net").exists();
    Check {
        name: "network namespaces",
        verdict: verdict(good, Verdict::Missing),
        found: if good { "there" } else { "not in this kernel" }.into(),
        remedy: if good { "" } else { "A kernel with CONFIG_NET_NS is needed" },
    }
}

fn firewall() -> Check {
    let nft = find_program("nft");
    Check {
        name: "nft",
        verdict: verdict(nft.is_some(), Verdict::Limited),
        found: nft.as_ref().map_or("not installed".into(), |path| path.display().to_string()),
        remedy: match nft {
            Some(_) => "",
            None => "Install it: apt-get install nftables. Until then sandboxes have no network",
        },
    }
}

fn oci() -> Check {
    let here: Vec<&str> =
        ["runc", "crun"].into_iter().filter(|name| find_program(name).is_some()).collect();
    Check {
        name: "OCI runtimes",
        verdict: verdict(!here.is_empty(), Verdict::Limited),
        found: if here.is_empty() { "none".into() } else { here.join(", ") },
        remedy: if here.is_empty() { "Optional: apt-get install runc" } else { "" },
    }
}
