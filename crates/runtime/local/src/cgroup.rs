//! Control groups: limits, freezing and counting, on v2, v1 and hybrid hosts.
//!
//! A sandbox has one group of the same name in every hierarchy used. On v2 that is one folder; on
//! v1 one per controller. A hybrid host's v2 tree, though it has no controllers, still freezes and
//! kills faster than v1 and lets a process be born inside, so it is used for that.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_core::Resources;

use crate::sys::process;

mod detect;
mod limits;
#[cfg(test)]
mod tests;

pub(crate) use detect::Layout;

/// The groups of one installation.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    layout: Layout,
    /// Folder that holds all groups of this installation, in every hierarchy.
    parent: String,
}

/// What the groups count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) cpu: Duration,
    pub(crate) memory_bytes: u64,
    /// Of these, pages of files that could be read again.
    pub(crate) cache_bytes: u64,
    /// Limits; zero for none.
    pub(crate) memory_limit_bytes: u64,
    pub(crate) cpu_limit_millis: u64,
    pub(crate) pids: u64,
    pub(crate) oom_kills: u64,
}

impl Cgroups {
    /// Makes the parent folders; `parent` is unique to this installation.
    pub(crate) fn prepare(layout: Layout, parent: String) -> io::Result<Self> {
        let cgroups = Self { layout, parent };
        for root in cgroups.layout.roots() {
            make(&root.join(&cgroups.parent))?;
        }
        if let (Some(root), true) = (&cgroups.layout.unified, cgroups.layout.v2_limits) {
            limits::enable_controllers(root)?;
            limits::enable_controllers(&root.join(&cgroups.parent))?;
        }
        limits::apply_to_all(&cgroups.layout, &cgroups.parent)?;
        Ok(cgroups)
    }

    /// Makes the groups of one sandbox with these limits.
    pub(crate) fn create(&self, name: &str, resources: Resources) -> io::Result<()> {
        for dir in self.dirs(name) {
            make(&dir)?;
        }
        limits::apply(&self.layout, &self.parent, name, resources)
    }

    /// The v2 folder, if there is a v2 tree.
    pub(crate) fn unified(&self, name: &str) -> Option<PathBuf> {
        self.layout.unified.as_ref().map(|root| root.join(&self.parent).join(name))
    }

    /// The v1 folders, by controller.
    pub(crate) fn v1(&self, name: &str) -> BTreeMap<String, PathBuf> {
        let dir = |root: &PathBuf| root.join(&self.parent).join(name);
        self.layout.v1.iter().map(|(controller, root)| (controller.clone(), dir(root))).collect()
    }

    /// The path of a group below its hierarchy's root, as OCI runtimes want it.
    pub(crate) fn oci_path(&self, name: &str) -> String {
        format!("/{}/{name}", self.parent)
    }

    /// Limits are set on v2.
    pub(crate) fn limits_on_v2(&self) -> bool {
        self.layout.v2_limits
    }

    /// Whether any of its groups is there.
    pub(crate) fn exists(&self, name: &str) -> bool {
        self.dirs(name).iter().any(|dir| dir.is_dir())
    }

    /// Freezes or thaws; returns when it is done.
    pub(crate) fn set_frozen(&self, name: &str, frozen: bool) -> io::Result<()> {
        match self.unified(name) {
            Some(dir) => {
                write(&dir.join("cgroup.freeze"), if frozen { "1" } else { "0" })?;
                settle(|| Ok(frozen == self.is_frozen(name)?))
            }
            None => match self.v1(name).get("freezer") {
                Some(dir) => {
                    let wanted = if frozen { "FROZEN" } else { "THAWED" };
                    settle(|| {
                        write(&dir.join("freezer.state"), wanted)?;
                        Ok(read(&dir.join("freezer.state"))?.trim() == wanted)
                    })
                }
                None => Err(io::Error::other("this host has no freezer")),
            },
        }
    }

    /// Takes as much memory from a frozen group as the kernel can: pages of files, and others where
    /// the host has swap. Takes a bounded time and stops when the group is thawed.
    pub(crate) fn reclaim(&self, name: &str) -> io::Result<()> {
        /// So small that a thaw is noticed soon.
        const STEP_BYTES: u64 = 32 << 20;
        const STEPS_MAX: u32 = 1024;
        if let (Some(dir), true) = (self.unified(name), self.layout.v2_limits) {
            for _ in 0..STEPS_MAX {
                let step = self.counted(name).memory_bytes.min(STEP_BYTES);
                if step == 0 || !self.is_frozen(name)? {
                    break;
                }
                // The kernel's word for "that is all there is".
                if write(&dir.join("memory.reclaim"), &step.to_string()).is_err() {
                    break;
                }
            }
            return Ok(());
        }
        match self.v1(name).get("memory") {
            // It ends by itself when a few rounds find nothing more.
            Some(dir) if self.is_frozen(name)? => write(&dir.join("memory.force_empty"), "0"),
            _ => Ok(()),
        }
    }

    /// Whether all its processes stand still.
    pub(crate) fn is_frozen(&self, name: &str) -> io::Result<bool> {
        if let Some(dir) = self.unified(name) {
            return Ok(read(&dir.join("cgroup.events"))?.lines().any(|line| line == "frozen 1"));
        }
        match self.v1(name).get("freezer") {
            Some(dir) => Ok(read(&dir.join("freezer.state"))?.trim() == "FROZEN"),
            None => Ok(false),
        }
    }

    /// Kills everything inside, where the kernel has a way to do it at once.
    pub(crate) fn kill(&self, name: &str) -> io::Result<()> {
        match self.unified(name).map(|dir| dir.join("cgroup.kill")) {
            Some(file) if file.exists() => write(&file, "1"),
            _ => self.kill_each(name),
        }
    }

    /// Kills one by one, until a look finds nobody: v1 has no other way.
    fn kill_each(&self, name: &str) -> io::Result<()> {
        self.set_frozen(name, false)?;
        let Some(file) = self.v1(name).into_values().next().map(|dir| dir.join("cgroup.procs"))
        else {
            return Ok(());
        };
        settle(|| {
            let inside = read(&file)?;
            for pid in inside.lines().filter_map(|line| line.parse().ok()) {
                // One that ended meanwhile can't be opened, and needs no killing.
                if let Ok(pidfd) = process::open_pid(pid) {
                    process::signal(pidfd.as_fd(), libc::SIGKILL)?;
                }
            }
            Ok(inside.is_empty())
        })
    }

    /// Removes the groups once they are empty; groups that aren't there are fine.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        for dir in self.dirs(name) {
            settle(|| match std::fs::remove_dir(&dir) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(false),
                Err(error) => Err(error),
            })
            .map_err(|e| io::Error::new(e.kind(), format!("removing {}: {e}", dir.display())))?;
        }
        Ok(())
    }

    /// Names of all groups of this installation.
    pub(crate) fn list(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .layout
            .roots()
            .filter_map(|root| std::fs::read_dir(root.join(&self.parent)).ok())
            .flat_map(|entries| entries.filter_map(Result::ok))
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// What the groups count.
    pub(crate) fn counted(&self, name: &str) -> Counted {
        limits::counted(&self.layout, &self.parent, name)
    }

    /// Removes the parent folders when nothing is left in them.
    pub(crate) fn remove_parent(&self) {
        for root in &self.layout.all {
            match std::fs::remove_dir(root.join(&self.parent)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::debug!(%error, "a control group stays: it is not empty");
                }
                _ => {}
            }
        }
    }

    fn dirs(&self, name: &str) -> Vec<PathBuf> {
        self.layout.roots().map(|root| root.join(&self.parent).join(name)).collect()
    }
}

/// Repeats `attempt` until it says that it is done, for a bounded time.
fn settle(mut attempt: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    const PAUSE: Duration = Duration::from_micros(200);
    for _ in 0..25_000 {
        if attempt()? {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel did not settle within 5 s"))
}

fn make(dir: &Path) -> io::Result<()> {
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(io::Error::new(error.kind(), format!("making {}: {error}", dir.display())))
        }
        _ => Ok(()),
    }
}

fn read(file: &Path) -> io::Result<String> {
    std::fs::read_to_string(file)
        .map_err(|e| io::Error::new(e.kind(), format!("reading {}: {e}", file.display())))
}

fn write(file: &Path, value: &str) -> io::Result<()> {
    std::fs::write(file, value).map_err(|e| {
        io::Error::new(e.kind(), format!("writing {value:?} to {}: {e}", file.display()))
    })
}
