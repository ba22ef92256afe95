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
    let mut all = needed();
    all.extend([firewall(), oci()]);
    all
}

/// What no sandbox can do without.
fn needed() -> Vec<Check> {
    vec![privileges(), kernel(), overlay(), groups(), users(), networks()]
}

/// What makes sandboxes impossible, a line each.
pub(crate) fn obstacles() -> Vec<String> {
    let missing = needed().into_iter().filter(|check| check.verdict == Verdict::Missing);
    missing.map(|c| format!("  {}: {}. {}", c.name, c.found, c.remedy)).collect()
}

/// Why an OCI runtime can't be used here; nothing when it can.
pub(crate) fn why_not(program: &str) -> Option<&'static str> {
    // It would need a virtual machine's own network and files, which nothing here makes.
    if name_of(program).starts_with("kata") {
        return Some(
            "virtual machines are not made here: they take neither the sandbox's network \
             namespace nor its files; use native, runc, crun or runsc",
        );
    }
    match find_program(program) {
        Some(_) => None,
        None => Some("it is not installed; install it, or use native"),
    }
}

/// Whether the program is gVisor's.
pub(crate) fn is_gvisor(program: &str) -> bool {
    name_of(program) == "runsc"
}

/// What is wrong with an old release of gVisor; nothing when it is new enough, or not known.
pub(crate) fn gvisor_complaint(program: &str) -> Option<String> {
    /// The oldest release known to run the usual programs.
    const RELEASE_MIN: u32 = 20_240_729;
    let found = find_program(program)?;
    let said = std::process::Command::new(found).arg("--version").output().ok()?.stdout;
    let release = release_of(&String::from_utf8_lossy(&said))?;
    (release < RELEASE_MIN).then(|| {
        format!(
            "release {release} is older than {RELEASE_MIN}: ls, stat and others fail in images \
             with GNU coreutils 9"
        )
    })
}

/// The date in what `runsc --version` says: `runsc version release-20240729.0`.
fn release_of(said: &str) -> Option<u32> {
    let mut numbers = said.lines().next()?.split(|c: char| !c.is_ascii_digit());
    numbers.find(|number| number.len() == 8)?.parse().ok()
}

fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
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
        ["runc", "crun", "runsc"].into_iter().filter(|name| find_program(name).is_some()).collect();
    let complaint = gvisor_complaint("runsc");
    Check {
        name: "OCI runtimes",
        verdict: verdict(!here.is_empty() && complaint.is_none(), Verdict::Limited),
        found: match &complaint {
            _ if here.is_empty() => "none".into(),
            Some(complaint) => format!("{}; runsc: {complaint}", here.join(", ")),
            None => here.join(", "),
        },
        remedy: match complaint {
            _ if here.is_empty() => "Optional: apt-get install runc",
            Some(_) => "Install a newer runsc: https://gvisor.dev/docs/user_guide/install",
            None => "",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_machines_are_refused_with_a_reason() {
        for program in ["kata-runtime", "/opt/kata/bin/kata-runtime", "kata"] {
            assert!(why_not(program).is_some_and(|why| why.contains("virtual machines")));
        }
        assert!(why_not("no-such-runtime").is_some_and(|why| why.contains("not installed")));
    }

    #[test]
    fn gvisor_is_known_by_its_name_and_its_release_by_its_date() {
        assert!(is_gvisor("runsc") && is_gvisor("/usr/local/bin/runsc"));
        assert!(!is_gvisor("runc") && !is_gvisor("/opt/runsc/crun"));
        for (said, release) in [
            ("runsc version release-20250310.0\nspec: 1.1.0-rc.1\n", Some(20_250_310)),
            ("runsc version 0.0~20221219.0\nspec: 1.0.2-dev\n", Some(20_221_219)),
            ("runsc version VERSION_MISSING\nspec: 20221219\n", None),
            ("", None),
        ] {
            assert_eq!(release_of(said), release, "{said:?}");
        }
    }
}
