//! The runtime as the engine knows it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use atoll_control::{BoxedIo, LogTail, Port, Usage};
use atoll_core::{
    Action, Error, Isolation, Keep, Observed, Result, Sandbox, SandboxId, SnapshotId, Source,
};
use atoll_engine::seam::{Capabilities, Event, Runtime, RuntimeError};
use tokio::sync::mpsc;

use super::{LocalRuntime, locked};
use crate::live::Live;
use crate::protocol::files;
use crate::wanted::Interest;
use crate::{doctor, logs, rest, snapshots, volumes};

#[async_trait]
impl Runtime for LocalRuntime {
    fn capabilities(&self) -> Capabilities {
        let mut isolation = vec!["native".to_owned()];
        let programs = self.0.config.oci_programs.iter();
        isolation.extend(programs.filter(|p| doctor::why_not(p).is_none()).cloned());
        Capabilities { pause: true, snapshot: true, isolation }
    }

    async fn check(&self, sandbox: &Sandbox) -> Result<()> {
        self.check_space()?;
        if let Isolation::Oci(program) = &sandbox.spec.isolation {
            let here = self.capabilities().isolation;
            if !here.contains(program) {
                let problem =
                    format!("{program} is not available here; use one of {}", here.join(", "));
                return Err(Error::invalid("isolation", problem));
            }
        }
        if let Source::Snapshot(id) = &sandbox.spec.source
            && !self.0.layout.snapshot(id.as_str()).is_dir()
        {
            return Err(Error::not_found(format!("snapshot {id}")));
        }
        volumes::check(&self.0.config, &self.0.layout, sandbox)
    }

    async fn apply(&self, sandbox: &Sandbox, action: Action) -> Result<Observed, RuntimeError> {
        let id = sandbox.id.as_str();
        match action {
            Action::Create => {
                if self.0.live(id).is_some() {
                    let _alone = self.0.lock(&sandbox.id).await;
                    if let Some(fitting) = self.0.fit(sandbox).await? {
                        return Ok(fitting);
                    }
                }
                let interest = Interest::default();
                let base = self.0.base(sandbox).await?;
                let local = Arc::clone(&self.0);
                let sandbox = Arc::new(sandbox.clone());
                // From here on it runs to its end even when the caller loses interest, so that a
                // removal finds either nothing or all of it.
                let built = tokio::spawn(local.build(sandbox, base, interest.wanted())).await;
                built.unwrap_or_else(panicked)
            }
            Action::Pause => match sandbox.life.keep() {
                Keep::Memory => {
                    let seen = self.freeze(id, true).await?;
                    self.reclaim(id);
                    Ok(seen)
                }
                Keep::Files => {
                    let laid = Arc::clone(&self.0).lay_down(Arc::new(sandbox.clone()));
                    tokio::spawn(laid).await.unwrap_or_else(panicked)
                }
            },
            Action::Resume => {
                let up = Arc::clone(&self.0).get_up(Arc::new(sandbox.clone()));
                match tokio::spawn(up).await.unwrap_or_else(panicked)? {
                    Some(seen) => Ok(seen),
                    None => self.freeze(id, false).await,
                }
            }
            Action::Remove => {
                let local = Arc::clone(&self.0);
                // What is being started holds the lock; without processes it lets go.
                if local.cgroups.exists(id)
                    && let Err(error) = local.cgroups.kill(id)
                {
                    tracing::debug!(%error, id, "not killed before its removal");
                }
                let _alone = local.lock(&sandbox.id).await;
                local.tear_down(id).await?;
                locked(&local.locks).remove(id);
                volumes::remove_owned(&local.volumes, sandbox).map_err(|error| {
                    RuntimeError::transient(
                        "REMOVE_FAILED",
                        &error.to_string(),
                        "it is tried again",
                    )
                })?;
                Ok(Observed::Absent)
            }
        }
    }

    async fn is_untouched(&self, sandbox: &Sandbox) -> bool {
        self.0.is_untouched(sandbox).await
    }

    async fn observe(&self, id: &SandboxId) -> Result<Observed, RuntimeError> {
        self.0.seen(id.as_str()).await
    }

    async fn list(&self) -> Result<Vec<(SandboxId, Observed)>, RuntimeError> {
        // The engine asks every few seconds: time to replace a spawner that died, since the
        // network of all sandboxes hangs on it.
        if let Err(error) = self.0.spawner.attach().await {
            tracing::error!(%error, "there is no spawner");
        }
        let folders = std::fs::read_dir(self.0.layout.sandboxes())
            .map_err(|e| RuntimeError::transient("LIST_FAILED", &e.to_string(), "try again"))?;
        let mut names: BTreeSet<String> =
            folders.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.extend(self.0.cgroups.list());
        let mut found = Vec::new();
        for id in names.iter().filter_map(|name| SandboxId::parse(name).ok()) {
            let seen = self.0.seen(id.as_str()).await?;
            found.push((id, seen));
        }
        Ok(found)
    }

    async fn remove_orphan(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let _alone = self.0.lock(id).await;
        self.0.tear_down(id.as_str()).await
    }

    fn events(&self) -> Option<mpsc::Receiver<Event>> {
        locked(&self.0.inbox).take()
    }

    async fn connect(&self, id: &SandboxId, port: Port) -> Result<BoxedIo> {
        let live = self.running(id)?;
        let opened: io::Result<BoxedIo> = match port {
            Port::Agent => live.agent().await,
            Port::Tcp(port) => self
                .0
                .dialer
                .dial(Arc::clone(&live.pidfd), port)
                .await
                .map(|stream| Box::new(stream) as BoxedIo),
        };
        opened.map_err(|error| match (error.kind(), port) {
            (io::ErrorKind::ConnectionRefused, Port::Tcp(port)) => {
                Error::unavailable(format!("nothing listens on port {port} of sandbox {id}"))
                    .with_reason("PORT_CLOSED")
            }
            _ => Error::unavailable(format!("sandbox {id} can't be reached: {error}"))
                .with_reason("SANDBOX_NOT_RUNNING"),
        })
    }

    async fn logs(&self, id: &SandboxId, bytes_max: usize) -> Result<LogTail> {
        let dir = self.0.layout.sandbox(id.as_str());
        if !dir.is_dir() {
            return Err(Error::not_found(format!("sandbox {id}")));
        }
        let file = dir.join(files::LOG);
        let kept = match (std::fs::read(&file), self.0.live(id.as_str())) {
            (Ok(bytes), _) => LogTail { bytes, truncated: false },
            // A spawner that died took the ring with it; the sandbox itself goes on.
            (Err(_), Some(live)) => match self.0.ring(&live.launched) {
                Ok(ring) => logs::from_ring(&ring),
                Err(_) => LogTail { bytes: Vec::new(), truncated: true },
            },
            (Err(_), None) => LogTail::default(),
        };
        Ok(logs::tail(kept, bytes_max))
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage> {
        self.running(id)?;
        let counted = self.0.cgroups.counted(id.as_str());
        let (disk_total_bytes, free) = crate::sys::disk_space(&self.0.config.data_dir)
            .map_err(|error| Error::internal(format!("looking at the disk: {error}")))?;
        Ok(Usage {
            cpu: counted.cpu,
            memory_bytes: counted.memory_bytes,
            cache_bytes: counted.cache_bytes,
            memory_limit_bytes: counted.memory_limit_bytes,
            cpu_limit_millis: counted.cpu_limit_millis,
            pids: counted.pids,
            // Of the data folder's whole disk, which all sandboxes share: the size of one writable
            // layer could only be had by walking it.
            disk_used_bytes: disk_total_bytes.saturating_sub(free),
            disk_total_bytes,
        })
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<(), RuntimeError> {
        if self.0.layout.snapshot(snapshot.as_str()).is_dir() {
            return Ok(());
        }
        let name = id.as_str();
        // One that rests is kept from getting up meanwhile.
        let _resting = match rest::seen(&self.0.layout.sandbox(name)) {
            Some(_) => Some(self.0.lock(id).await),
            None => None,
        };
        // Files stand still while they are copied. One that is paused stays so.
        let was_frozen = self.0.cgroups.is_frozen(name).unwrap_or(false);
        if !was_frozen {
            self.freeze(name, true).await?;
        }
        let dir = self.0.layout.sandbox(name);
        let taken = match self.check_disk() {
            Ok(()) => snapshots::take(&self.0.layout, &dir, snapshot.as_str()).await,
            Err(full) => Err(full),
        };
        if !was_frozen {
            self.freeze(name, false).await?;
        }
        taken.map_err(|error| {
            RuntimeError::permanent(
                "SNAPSHOT_FAILED",
                &format!("the files of sandbox {id} could not be kept: {error}"),
                "free disk space in the data folder, then try again",
            )
        })
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotId>, RuntimeError> {
        let names = snapshots::list(&self.0.layout);
        Ok(names.iter().filter_map(|name| SnapshotId::parse(name).ok()).collect())
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<()> {
        let (layout, id) = (self.0.layout.clone(), snapshot.as_str().to_owned());
        let removed = tokio::task::spawn_blocking(move || snapshots::remove(&layout, &id)).await;
        removed.unwrap_or_else(|panic| Err(Error::internal(panic.to_string())))
    }
}

fn panicked<T>(panic: tokio::task::JoinError) -> Result<T, RuntimeError> {
    Err(RuntimeError::permanent("START_FAILED", &panic.to_string(), "report this"))
}

impl LocalRuntime {
    /// Lets the kernel have the memory of a sandbox that stands still, as far as it can write it
    /// elsewhere or read it again. Nobody waits for it.
    fn reclaim(&self, id: &str) {
        let (local, id) = (Arc::clone(&self.0), id.to_owned());
        tokio::spawn(async move {
            let Ok(turn) = Arc::clone(&local.reclaiming).acquire_owned().await else { return };
            let reclaimed = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                local.cgroups.reclaim(&id)
            });
            if let Ok(Err(error)) = reclaimed.await {
                tracing::debug!(%error, "a paused sandbox keeps its memory");
            }
        });
    }

    /// The same check for callers of the doors.
    pub(crate) fn check_space(&self) -> Result<()> {
        self.check_disk().map_err(|e| Error::unavailable(e.to_string()).with_reason("DISK_FULL"))
    }

    /// Refuses new files while the disk is nearly full, so that sandboxes that run, and the
    /// records, have what is left.
    fn check_disk(&self) -> io::Result<()> {
        let (total, free) = crate::sys::disk_space(&self.0.config.data_dir)?;
        let reserve = (total / 50).min(self.0.config.disk_reserve_bytes);
        if free >= reserve {
            return Ok(());
        }
        let message = format!(
            "no space left: the disk of the data folder has {free} bytes, and {reserve} are kept \
             for sandboxes that run; remove some, or free space"
        );
        Err(io::Error::new(io::ErrorKind::StorageFull, message))
    }

    /// The handles of a sandbox that has a process.
    fn running(&self, id: &SandboxId) -> Result<Arc<Live>> {
        match self.0.live(id.as_str()) {
            Some(live) => Ok(live),
            None if self.0.layout.sandbox(id.as_str()).is_dir() => {
                let message = format!("sandbox {id} has no process");
                Err(Error::conflict(message).with_reason("SANDBOX_NOT_RUNNING"))
            }
            None => Err(Error::not_found(format!("sandbox {id}"))),
        }
    }

    async fn freeze(&self, id: &str, frozen: bool) -> Result<Observed, RuntimeError> {
        let Some(live) = self.0.live(id) else { return self.0.seen(id).await };
        if live.has_ended() {
            return self.0.seen(id).await;
        }
        let (local, name) = (Arc::clone(&self.0), id.to_owned());
        let done =
            tokio::task::spawn_blocking(move || local.cgroups.set_frozen(&name, frozen)).await;
        match done.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            Ok(()) if frozen => Ok(Observed::Paused),
            Ok(()) => Ok(Observed::Running),
            Err(error) => Err(RuntimeError::transient(
                "FREEZER_FAILED",
                &format!("the kernel did not freeze or thaw the sandbox: {error}"),
                "it is tried again; look at the server's log when this persists",
            )),
        }
    }
}
