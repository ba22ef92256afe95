//! The image made of this host: its `/usr` seen copy-on-write, everything else fresh.
//!
//! Nothing of the host's own state is copied, only the entries of `/etc` that installed programs
//! need and that every user of the host can read. The skeleton is made once per version of these
//! entries; a restart picks up changes.

mod accounts;
mod etc;
mod plan;

#[cfg(test)]
mod tests;

use crate::{Error, Image, ImageConfig, OverlayRoot, scratch::ScratchDir};
use plan::{Item, Plan};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Raised when the skeleton changes by other means than the host's files.
const SKELETON_VERSION: u32 = 1;
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Programs that clients expect to find.
const EXPECTED: [&str; 5] = ["bash", "python3", "git", "curl", "sudo"];

/// Makes the skeleton unless it is there, and describes the image.
pub(crate) fn make(root: &Path, scratch: &ScratchDir) -> Result<Image, Error> {
    let plan = skeleton()?;
    let version = plan.version();
    let directory = carry_out(&plan, root, scratch)?;
    let mut programs = vec![PathBuf::from("/usr")];
    if let Some(more) = more_programs(Path::new("/usr")) {
        programs.insert(0, carry_out(&more, root, scratch)?);
    }
    Ok(Image {
        reference: "host".into(),
        digest: format!("host:{version}"),
        roots: vec![
            OverlayRoot { target: "/".into(), lowers: vec![directory] },
            OverlayRoot { target: "/usr".into(), lowers: programs },
        ],
        config: ImageConfig {
            env: vec![("PATH".into(), SEARCH_PATH.into()), ("LANG".into(), "C.UTF-8".into())],
            cmd: ["tail", "-f", "/dev/null"].map(String::from).to_vec(),
            working_dir: Some("/".into()),
            ..ImageConfig::default()
        },
        warnings: warnings(Path::new("/usr/bin")),
    })
}

/// Where the parts of the host's image as it is now lie.
pub(crate) fn current_directories(root: &Path) -> Vec<PathBuf> {
    let plans = skeleton().ok().into_iter().chain(more_programs(Path::new("/usr")));
    plans.map(|plan| root.join("host").join(plan.version())).collect()
}

/// The folder with what a plan describes, made unless it is there.
fn carry_out(plan: &Plan, root: &Path, scratch: &ScratchDir) -> Result<PathBuf, Error> {
    let directory = root.join("host").join(plan.version());
    if !directory.is_dir() {
        let unfinished = scratch.reserve("host");
        plan.carry_out(unfinished.path())?;
        unfinished.finish("host", &directory)?;
    }
    Ok(directory)
}

/// `python`, by which name agents and their tools call for Python, where the host has only
/// `python3`.
fn more_programs(usr: &Path) -> Option<Plan> {
    let has = |name: &str| usr.join("bin").join(name).exists();
    if has("python") || !has("python3") {
        return None;
    }
    let mut plan = Plan::new(SKELETON_VERSION);
    for path in ["local", "local/bin"] {
        plan.add(path, Item::Directory { mode: 0o755, owner: accounts::ROOT });
    }
    plan.add("local/bin/python", Item::Link("/usr/bin/python3".into()));
    Some(plan)
}

fn skeleton() -> Result<Plan, Error> {
    let mut plan = Plan::new(SKELETON_VERSION);
    merged_links(Path::new("/"), &mut plan)?;
    let directories = [
        ("usr", 0o755),
        ("etc", 0o755),
        ("home", 0o755),
        ("root", 0o700),
        ("tmp", 0o1777),
        ("run", 0o755),
        ("run/lock", 0o1777),
        ("opt", 0o755),
        ("srv", 0o755),
        ("mnt", 0o755),
        ("media", 0o755),
        ("dev", 0o755),
        ("proc", 0o555),
        ("sys", 0o555),
        ("var", 0o755),
        ("var/tmp", 0o1777),
        ("var/log", 0o755),
        ("var/lib", 0o755),
        ("var/cache", 0o755),
        ("var/spool", 0o755),
        ("var/mail", 0o755),
    ];
    for (path, mode) in directories {
        plan.add(path, Item::Directory { mode, owner: accounts::ROOT });
    }
    plan.add("var/run", Item::Link("/run".into()));
    plan.add("var/lock", Item::Link("/run/lock".into()));
    etc::add(&mut plan)?;
    accounts::add(&mut plan)?;
    Ok(plan)
}

/// `/bin` and its like as links into `/usr`, the only shape in which `/usr` is the whole system.
fn merged_links(host: &Path, plan: &mut Plan) -> Result<(), Error> {
    for name in ["bin", "sbin", "lib", "lib64", "lib32", "libx32"] {
        let path = host.join(name);
        let required = matches!(name, "bin" | "sbin" | "lib");
        match fs::read_link(&path) {
            Ok(target) if target.strip_prefix("/").unwrap_or(&target).starts_with("usr") => {
                plan.add(name, Item::Link(target));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !required => {}
            _ => {
                let reason = format!(
                    "{} is not a link into /usr (the system is not usr-merged)",
                    path.display()
                );
                return Err(Error::HostUnsupported { reason });
            }
        }
    }
    Ok(())
}

fn warnings(programs: &Path) -> Vec<String> {
    let missing: BTreeSet<&str> =
        EXPECTED.into_iter().filter(|name| !programs.join(name).exists()).collect();
    let warning = |name| format!("{name} is not installed on this host: apt-get install {name}");
    missing.into_iter().map(warning).collect()
}
