//! The local runtime: one folder, one set of groups and one process tree per sandbox.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_core::{Isolation, Observed, SandboxId};
use atoll_engine::seam::{Event, RuntimeError};
use atoll_image::ImageStore;
use tokio::sync::{OwnedMutexGuard, Semaphore, mpsc};

use crate::cgroup::Cgroups;
use crate::client::Spawner;
use crate::config::{Layout, LocalConfig};
use crate::dial::Dialer;
use crate::files::read_json;
use crate::live::{self, Live};
use crate::plan::{self, Plan};
use crate::protocol::{Launched, Launcher, files};
use crate::rest;
use crate::trash::Trash;
use crate::volumes::Registry;

mod seam;
mod start;

pub use start::StartError;

/// Hints waiting for the engine; a full queue drops them, since the engine also looks by itself.
const EVENTS_MAX: usize = 4096;
/// How long the end of a killed sandbox may take.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Sandboxes of this machine.
pub struct LocalRuntime(pub(crate) Arc<Local>);

pub(crate) struct Local {
    pub(crate) config: LocalConfig,
    pub(crate) layout: Layout,
    pub(crate) cgroups: Cgroups,
    pub(crate) images: ImageStore,
    pub(crate) spawner: Spawner,
    pub(crate) volumes: Registry,
    /// Taking memory from paused sandboxes is slow work: one at a time.
    reclaiming: Arc<Semaphore>,
    dialer: Arc<Dialer>,
    live: Mutex<HashMap<String, Arc<Live>>>,
    /// Making and removing of one sandbox never overlap.
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    events: mpsc::Sender<Event>,
    inbox: Mutex<Option<mpsc::Receiver<Event>>>,
}

impl Local {
    pub(crate) fn live(&self, id: &str) -> Option<Arc<Live>> {
        locked(&self.live).get(id).cloned()
    }

    /// Lets go of a sandbox; its end is no news any more.
    pub(crate) fn forget(&self, id: &str) -> Option<Arc<Live>> {
        locked(&self.live).remove(id)
    }

    /// Takes hold of a sandbox that has a process and watches for its end.
    pub(crate) fn adopt(self: &Arc<Self>, id: &str) -> io::Result<Option<Arc<Live>>> {
        let Some(found) = Live::adopt(&self.layout.sandbox(id), Arc::clone(&self.dialer))? else {
            return Ok(None);
        };
        let found = Arc::new(found);
        locked(&self.live).insert(id.to_owned(), Arc::clone(&found));
        let (this, watched, id) = (Arc::downgrade(self), Arc::clone(&found), id.to_owned());
        tokio::spawn(async move {
            if let Err(error) = watched.wait_ended().await {
                tracing::error!(%error, id, "can't watch a sandbox");
                return;
            }
            let Some(this) = this.upgrade() else { return };
            // One that is being removed is no news.
            if this.live(&id).is_some_and(|live| Arc::ptr_eq(&live, &watched)) {
                let exit = watched.exit(this.cgroups.counted(&id).oom_kills).await;
                if let Ok(id) = SandboxId::parse(&id) {
                    this.tell(Event::Seen(id, Observed::Exited(exit)));
                }
            }
        });
        Ok(Some(found))
    }

    pub(crate) fn tell(&self, event: Event) {
        // The engine looks by itself sooner or later; a lost hint only makes it later.
        if self.events.try_send(event).is_err() {
            tracing::debug!("an event was dropped");
        }
    }

    /// Keeps making and removing of one sandbox apart.
    pub(crate) async fn lock(&self, id: &SandboxId) -> OwnedMutexGuard<()> {
        let lock = Arc::clone(locked(&self.locks).entry(id.as_str().to_owned()).or_default());
        lock.lock_owned().await
    }

    /// What a sandbox is, from its folder and its process. One whose agent has never answered is
    /// not there yet: making it (again) waits for the answer.
    pub(crate) async fn seen(self: &Arc<Self>, id: &str) -> Result<Observed, RuntimeError> {
        let dir = self.layout.sandbox(id);
        if let Some(resting) = rest::seen(&dir) {
            return Ok(resting);
        }
        if dir.join(files::EXIT).exists() {
            return Ok(Observed::Exited(live::exit_of(&dir, self.cgroups.counted(id).oom_kills)));
        }
        let live = match self.live(id) {
            Some(live) => Some(live),
            // A launch that a former server asked for may have been finished just now.
            None => self.adopt(id).unwrap_or_else(|error| {
                tracing::warn!(%error, id, "can't take hold of a sandbox");
                None
            }),
        };
        let Some(live) = live else {
            // Without a launch there was never a process: what is there is an unfinished attempt.
            if !dir.join(files::LAUNCHED).exists() {
                return Ok(Observed::Absent);
            }
            let oom_kills = self.cgroups.counted(id).oom_kills;
            return Ok(Observed::Exited(live::last_words(&dir, oom_kills).await));
        };
        if live.has_ended() {
            return Ok(Observed::Exited(live.exit(self.cgroups.counted(id).oom_kills).await));
        }
        // Asking the agent would let one silent sandbox hold up the look at all others.
        if !live.has_answered() {
            return Ok(Observed::Absent);
        }
        let frozen = self.cgroups.is_frozen(id).unwrap_or(false);
        Ok(if frozen { Observed::Paused } else { Observed::Running })
    }

    /// Removes every trace. Fine when there is none.
    pub(crate) async fn tear_down(self: &Arc<Self>, id: &str) -> Result<(), RuntimeError> {
        let live = self.forget(id);
        let dir = self.layout.sandbox(id);
        if live.is_none() && !dir.exists() && !self.cgroups.exists(id) {
            return Ok(());
        }
        let launcher = read_json::<Plan>(&dir.join(plan::FILE)).map(|plan| plan.launcher);
        let mut removed = self.end(id, live.as_deref()).await;
        if removed.is_ok()
            && let Ok(Launcher::Oci { program, .. }) = launcher
        {
            removed = self.oci_delete(&program, id).await;
        }
        let (this, name) = (Arc::clone(self), id.to_owned());
        let swept = tokio::task::spawn_blocking(move || this.sweep(&name)).await;
        removed.and(swept.unwrap_or_else(|e| Err(io::Error::other(e)))).map_err(|error| {
            RuntimeError::transient(
                "REMOVE_FAILED",
                &format!("sandbox {id} could not be removed: {error}"),
                "it is tried again; look at the server's log when this persists",
            )
        })
    }

    /// Kills all processes and waits for the first one's end.
    pub(crate) async fn end(&self, id: &str, live: Option<&Live>) -> io::Result<()> {
        if self.cgroups.exists(id) {
            self.cgroups.kill(id)?;
        }
        if let Some(live) = live {
            live.kill()?;
            let ended = tokio::time::timeout(END_TIMEOUT, live.wait_ended()).await;
            ended.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it does not end"))??;
        }
        Ok(())
    }

    /// Groups and folder, once the processes are gone.
    fn sweep(&self, id: &str) -> io::Result<()> {
        self.cgroups.remove(id)?;
        Trash::of(&self.layout).throw(&self.layout.sandbox(id))
    }

    /// Lets an OCI runtime forget a sandbox, with the groups only it knows of.
    pub(crate) async fn oci_delete(&self, program: &str, id: &str) -> io::Result<()> {
        if !self.oci_knows(id) {
            return Ok(());
        }
        let mut command = tokio::process::Command::new(program);
        command.arg("--root").arg(self.layout.oci()).args(["delete", "--force", id]);
        let output = command.stdin(std::process::Stdio::null()).output().await?;
        if output.status.success() || !self.oci_knows(id) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(io::Error::other(format!("{program} delete: {said}")))
    }

    /// Whether an OCI runtime keeps something under this id: a folder, or gVisor's files.
    fn oci_knows(&self, id: &str) -> bool {
        let entries = std::fs::read_dir(self.layout.oci()).into_iter().flatten();
        let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.any(|name| {
            name.strip_prefix(id)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("_sandbox"))
        })
    }

    /// The OCI program to use, or none for our own launcher.
    pub(crate) fn oci_program(&self, isolation: &Isolation) -> Option<String> {
        match isolation {
            Isolation::Oci(program) => Some(program.clone()),
            Isolation::Native => None,
            Isolation::Default => match &self.config.isolation {
                Isolation::Oci(program) => Some(program.clone()),
                Isolation::Native | Isolation::Default => None,
            },
        }
    }

    /// The log ring of a running sandbox, through the spawner that holds it.
    fn ring(&self, launched: &Launched) -> io::Result<Vec<u8>> {
        use std::io::Read;
        use std::os::unix::fs::MetadataExt;
        let path = format!("/proc/{}/fd/{}", launched.spawner, launched.log_fd);
        // By the time we look the number may mean something else, even another sandbox's ring.
        if std::fs::metadata(&path)?.ino() != launched.log_inode {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut file = std::fs::File::open(&path)?;
        if file.metadata()?.ino() != launched.log_inode {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut ring = Vec::new();
        file.read_to_end(&mut ring)?;
        Ok(ring)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic elsewhere left the map whole: entries are inserted and removed in one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
