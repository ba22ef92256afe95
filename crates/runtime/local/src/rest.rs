//! Pausing with nothing but files.
//!
//! The processes end, their groups and network go, and the writable layers stay, on the disk. A
//! mark says so before anything ends, so that whoever looks meanwhile, or after a crash, doesn't
//! take the end for the sandbox's own. Resuming is starting it again from those layers.

use std::io;
use std::path::Path;
use std::sync::Arc;

use atoll_core::{Observed, Sandbox};
use atoll_engine::seam::RuntimeError;
use serde::{Deserialize, Serialize};

use crate::create::start_failure;
use crate::files::read_json;
use crate::plan::{self, Plan};
use crate::protocol::{Launched, Launcher, files};
use crate::runtime::{END_TIMEOUT, Local};
use crate::trash::Trash;

/// What a process leaves in the folder and the next one must not find.
const OF_A_PROCESS: [&str; 4] = [files::SOCKET, files::LAUNCHED, files::ANSWERED, files::EXIT];

/// Says that a sandbox rests, or is on its way there.
#[derive(Serialize, Deserialize)]
struct Mark {
    /// The machine's own `boot_id` when it was written.
    boot: String,
    /// All files are on the disk.
    complete: bool,
}

impl Mark {
    fn read(dir: &Path) -> Option<Self> {
        read_json(&dir.join(files::RESTING)).ok()
    }

    /// Writes it so that a power cut leaves this one or the one before.
    fn write(dir: &Path, complete: bool) -> io::Result<()> {
        use std::io::Write;
        let (place, draft) = (dir.join(files::RESTING), dir.join("resting.draft"));
        let mut file = std::fs::File::create(&draft)?;
        file.write_all(&serde_json::to_vec(&Self { boot: present_boot()?, complete })?)?;
        file.sync_all()?;
        std::fs::rename(&draft, &place)?;
        std::fs::File::open(dir)?.sync_all()
    }

    fn remove(dir: &Path) -> io::Result<()> {
        match std::fs::remove_file(dir.join(files::RESTING)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Its files may have been lost with the machine's memory.
    fn is_doubtful(&self) -> bool {
        !self.complete && present_boot().is_ok_and(|boot| boot != self.boot)
    }
}

fn present_boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// What a sandbox is that rests or is on its way there or back; nothing for all others.
pub(crate) fn seen(dir: &Path) -> Option<Observed> {
    Mark::read(dir)?;
    let up = is_alive(dir) && dir.join(files::ANSWERED).exists();
    Some(if up { Observed::Running } else { Observed::Paused })
}

/// Whether the sandbox in `dir` has a process.
fn is_alive(dir: &Path) -> bool {
    let launched = read_json::<Launched>(&dir.join(files::LAUNCHED));
    launched.is_ok_and(|launched| launched.lives(dir))
}

impl Local {
    /// Ends all processes and keeps the files.
    pub(crate) async fn lay_down(
        self: Arc<Self>,
        sandbox: Arc<Sandbox>,
    ) -> Result<Observed, RuntimeError> {
        let _alone = self.lock(&sandbox.id).await;
        let id = sandbox.id.as_str();
        let dir = self.layout.sandbox(id);
        match Mark::read(&dir) {
            Some(mark) if mark.complete => return Ok(Observed::Paused),
            Some(_) => {}
            // One that has ended, or isn't there, can't be paused.
            None => match self.seen(id).await? {
                Observed::Running | Observed::Paused => {
                    Mark::write(&dir, false).map_err(|e| pause_failure(id, &e))?;
                }
                other => return Ok(other),
            },
        }
        self.rest(id, &dir).await.map_err(|e| pause_failure(id, &e))?;
        Ok(Observed::Paused)
    }

    async fn rest(self: &Arc<Self>, id: &str, dir: &Path) -> io::Result<()> {
        self.end_processes(id, dir).await?;
        let dir = dir.to_owned();
        let done = tokio::task::spawn_blocking(move || {
            // Sandboxes that run need no file to be on the disk; one that rests does.
            rustix::fs::syncfs(std::fs::File::open(&dir)?)?;
            Mark::write(&dir, true)
        });
        done.await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
    }

    /// Ends what runs, if anything does, and takes away all that belongs to it.
    async fn end_processes(self: &Arc<Self>, id: &str, dir: &Path) -> io::Result<()> {
        // Out of the map first: this end is no news.
        let live = self.forget(id);
        self.end(id, live.as_deref()).await?;
        // Also about an end that an earlier server brought about, or a launch it asked for, the
        // spawner writes into the folder: the next start must not find that.
        self.spawner.settle(id, END_TIMEOUT).await?;
        if let Launcher::Oci { program, .. } = read_json::<Plan>(&dir.join(plan::FILE))?.launcher {
            self.oci_delete(&program, id).await?;
        }
        let (this, id, dir) = (Arc::clone(self), id.to_owned(), dir.to_owned());
        let done = tokio::task::spawn_blocking(move || {
            this.cgroups.remove(&id)?;
            OF_A_PROCESS.iter().try_for_each(|name| remove_if_there(&dir.join(name)))
        });
        done.await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
    }

    /// Starts a sandbox that rests; nothing when this one doesn't.
    pub(crate) async fn get_up(
        self: Arc<Self>,
        sandbox: Arc<Sandbox>,
    ) -> Result<Option<Observed>, RuntimeError> {
        let _alone = self.lock(&sandbox.id).await;
        let id = sandbox.id.as_str();
        let dir = self.layout.sandbox(id);
        let Some(mark) = Mark::read(&dir) else { return Ok(None) };
        let seen = if mark.complete && is_alive(&dir) {
            // An earlier server had begun.
            let live = match self.live(id) {
                Some(live) => Some(live),
                None => self.adopt(id).map_err(|e| start_failure(&e))?,
            };
            match live {
                Some(live) => self.wait_up(&sandbox, &live).await?,
                None => self.start_again(&sandbox, &dir).await?,
            }
        } else if mark.is_doubtful() {
            return Err(RuntimeError::permanent(
                "FILES_LOST",
                "the machine stopped before the files of the sandbox were all on its disk",
                "create a new sandbox",
            ));
        } else {
            self.start_again(&sandbox, &dir).await?
        };
        Mark::remove(&dir).map_err(|e| start_failure(&e))?;
        Ok(Some(seen))
    }

    async fn start_again(
        self: &Arc<Self>,
        sandbox: &Sandbox,
        dir: &Path,
    ) -> Result<Observed, RuntimeError> {
        let plan: Plan = read_json(&dir.join(plan::FILE)).map_err(|e| start_failure(&e))?;
        let ended = self.end_processes(sandbox.id.as_str(), dir).await;
        ended.map_err(|e| start_failure(&e))?;
        let (trash, dir, trees) = (Trash::of(&self.layout), dir.to_owned(), plan.base.trees.len());
        let cleared = tokio::task::spawn_blocking(move || {
            remove_if_there(&dir.join(files::LOG))?;
            for number in 0..trees {
                // Overlayfs refuses a work folder whose last mount did not write everything out;
                // here the files were written out otherwise.
                trash.throw(&plan::writable(&dir, number).join("work"))?;
            }
            Ok(())
        });
        let cleared = cleared.await.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        cleared.map_err(|e: io::Error| start_failure(&e))?;
        self.start(sandbox, plan.base).await
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn pause_failure(id: &str, error: &io::Error) -> RuntimeError {
    RuntimeError::transient(
        "PAUSE_FAILED",
        &format!("sandbox {id} could not be put to rest: {error}"),
        "it is tried again; look at the server's log when this persists",
    )
}

#[cfg(test)]
mod tests;
