//! Builders and the snapshots taken of them.

use std::time::Duration;

use atoll_control::{Access, Create};
use atoll_core::{
    Error, ErrorKind, Phase, SandboxId, SandboxSpec, SnapshotId, SnapshotState,
    Source as CoreSource,
};
use tokio::time::Instant;

use super::chain::Chain;
use super::{BUILDER_LABEL, Builder, Failure, SNAPSHOT_PREFIX, Work};
use crate::agent::Agent;
use crate::book::Change;
use crate::log::Level;
use crate::record::{Cached, Layer, Made, Source};

/// How long a builder lives beyond its build, should nobody be left to remove it.
const LIFE_AFTER: Duration = Duration::from_secs(5 * 60);
/// How long making a builder may take; an image may have to be pulled first.
const START_TIME_MAX: Duration = Duration::from_secs(15 * 60);
const SNAPSHOT_TIME_MAX: Duration = Duration::from_secs(10 * 60);
const LOOK_EVERY_MIN: Duration = Duration::from_millis(5);
const LOOK_EVERY_MAX: Duration = Duration::from_millis(250);
/// Snapshots of one build; overlays are not endless.
const LAYERS_MAX: usize = 24;
/// Looks for room; removed snapshots take a moment to go.
const ROOM_TRIES: usize = 20;

impl Work {
    /// Goes to where the longest known chain of steps led; answers how many steps that saves.
    pub(super) async fn resume(&mut self, chain: &Chain) -> usize {
        for (done, key) in chain.reusable() {
            if self.recall(key).await {
                return done;
            }
        }
        0
    }

    /// Takes over what is remembered under `key`, if it is still there.
    pub(super) async fn recall(&mut self, key: &str) -> bool {
        let Some(cached) = self.shop.book.read().cache.get(key).cloned() else { return false };
        let pen = self.shop.book.pen().await;
        if let Source::Snapshot(id) = &cached.made.source
            && !self.is_kept(id).await
        {
            // It would be looked for again and again; nothing is lost with it.
            pen.write(vec![Change::DropCached(key.to_owned())]).await.ok();
            return false;
        }
        let used = Cached { used_at: (self.shop.now)(), ..Cached::clone(&cached) };
        pen.write(vec![Change::Cached(key.to_owned(), used)]).await.ok();
        self.made = cached.made.clone();
        self.changed = false;
        self.pin();
        true
    }

    /// Holds on to the layer that the build stands on.
    pub(super) fn pin(&self) {
        if let Source::Snapshot(id) = &self.made.source {
            self.shop.pin(&self.build.id, Some(id));
        }
    }

    async fn is_kept(&self, id: &str) -> bool {
        let Ok(id) = SnapshotId::parse(id) else { return false };
        let found = self.shop.control.get_snapshot(&self.owner, &id).await;
        found.is_ok_and(|snapshot| snapshot.state == SnapshotState::Ready)
    }

    /// Keeps what the steps so far led to, under `key`. Only the last of many layers is a must.
    pub(super) async fn settle(&mut self, key: &str, last: bool) -> Result<(), Failure> {
        if self.changed {
            if self.layers >= LAYERS_MAX && !last {
                return Ok(());
            }
            self.keep().await?;
        }
        self.remember(key).await
    }

    /// Writes down what led to what is made now.
    pub(super) async fn remember(&mut self, key: &str) -> Result<(), Failure> {
        let tenant = self.tenant.to_string();
        let cached = Cached { tenant, made: self.made.clone(), used_at: (self.shop.now)() };
        let pen = self.shop.book.pen().await;
        let written = pen.write(vec![Change::Cached(key.to_owned(), cached)]).await;
        written.map_err(self.because("remembering the step"))
    }

    /// Makes the builder's files a snapshot; the builder goes.
    async fn keep(&mut self) -> Result<(), Failure> {
        self.builder().await?;
        let Some(builder) = &self.builder else {
            return Err(self.failure("the builder is gone"));
        };
        let name = format!("{SNAPSHOT_PREFIX}{}-{}", self.build.template, self.layers);
        let id = self.take(&builder.id.clone(), name).await?;
        self.taken(&id).await?;
        let parent = match &self.made.source {
            Source::Snapshot(parent) => Some(parent.clone()),
            Source::Image(_) => None,
        };
        let layer = Layer { owner: self.owner.to_string(), parent };
        self.made.source = Source::Snapshot(id.to_string());
        self.pin();
        let pen = self.shop.book.pen().await;
        let written = pen.write(vec![Change::Layer(id.to_string(), layer)]).await;
        drop(pen);
        written.map_err(self.because("keeping the files"))?;
        (self.changed, self.since, self.layers) = (false, Instant::now(), self.layers + 1);
        self.dismiss().await;
        Ok(())
    }

    /// Begins a snapshot. Where a tenant has as many as it may, remembered steps make room.
    async fn take(&self, of: &SandboxId, name: String) -> Result<SnapshotId, Failure> {
        let (control, owner) = (&self.shop.control, &self.owner);
        let mut taken = control.snapshot(owner, of, Some(name.clone())).await;
        for _ in 0..ROOM_TRIES {
            if !taken.as_ref().is_err_and(|error| error.kind() == ErrorKind::Exhausted) {
                break;
            }
            self.shop.make_room(&self.tenant).await;
            tokio::time::sleep(LOOK_EVERY_MAX).await;
            taken = control.snapshot(owner, of, Some(name.clone())).await;
        }
        Ok(taken.map_err(self.because("keeping the files"))?.id.clone())
    }

    /// Waits until a snapshot is whole.
    async fn taken(&self, id: &SnapshotId) -> Result<(), Failure> {
        let patience = Instant::now() + SNAPSHOT_TIME_MAX;
        let mut pause = LOOK_EVERY_MIN;
        loop {
            let found = self.shop.control.get_snapshot(&self.owner, id).await;
            match &found.map_err(self.because("keeping the files"))?.state {
                SnapshotState::Ready => return Ok(()),
                SnapshotState::Failed(why) => {
                    return Err(self.failure(format!("keeping the files: {why}")));
                }
                SnapshotState::Deleting => return Err(self.failure("its snapshot was removed")),
                SnapshotState::Creating => {}
            }
            if Instant::now() >= patience {
                return Err(self.failure("keeping the files takes too long"));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_EVERY_MAX);
        }
    }

    /// The builder; made now if there is none.
    pub(super) async fn builder(&mut self) -> Result<&mut Builder, Failure> {
        if self.builder.is_none() {
            let bare = Made { start: None, ready: None, ..self.made.clone() };
            let mut spec = self.spec(&bare)?;
            if let CoreSource::Image(image) = &mut spec.source {
                image.auth.clone_from(&self.auth);
            }
            // Variables and the starting folder are given with each command.
            spec.env.clear();
            spec.guest.workdir = None;
            let id = self.start(spec).await?;
            let access = Access::Tenant(self.owner.clone());
            let agent = Agent::new(self.shop.control.clone(), access, id.clone());
            self.builder = Some(Builder { id, agent, shell: None });
        }
        Ok(self.builder.as_mut().expect("it was made just now"))
    }

    fn spec(&self, made: &Made) -> Result<SandboxSpec, Failure> {
        let spec = made.spec(self.shop.config.ready_time_max);
        let mut spec = spec.map_err(self.because("making a builder"))?;
        spec.resources = self.resources();
        spec.extensions.insert(BUILDER_LABEL.to_owned(), self.build.id.clone());
        Ok(spec)
    }

    /// Starts what was made just as its sandboxes will be, and removes it again.
    pub(super) async fn try_out(&mut self) -> Result<(), Failure> {
        let spec = self.spec(&self.made)?;
        let id = self.start(spec).await?;
        let said = self.shop.control.logs(&self.owner, &id, 16 * 1024).await;
        self.tell(&said.map(|tail| tail.bytes).unwrap_or_default());
        self.remove(&id).await;
        Ok(())
    }

    /// Starts a sandbox and waits until it runs.
    async fn start(&self, spec: SandboxSpec) -> Result<SandboxId, Failure> {
        let mut create = Create::new(spec);
        create.lifetime = Some(self.shop.config.build_time_max + LIFE_AFTER);
        let made = self.shop.control.create(&self.owner, create).await;
        let id = made.map_err(self.because("starting a sandbox"))?.id.clone();
        let patience = START_TIME_MAX.max(self.shop.config.ready_time_max) + LIFE_AFTER;
        let waited = self.shop.control.wait(&self.owner, &id, patience).await;
        let problem = match waited {
            Ok(sandbox) if sandbox.life.phase() == Phase::Running => return Ok(id),
            Ok(sandbox) => match sandbox.life.diagnostic() {
                Some(why) => format!("{}: {}", why.reason, why.message),
                None => "its main program ended, or it did not start in time".to_owned(),
            },
            Err(error) => Error::to_string(&error),
        };
        let said = self.shop.control.logs(&self.owner, &id, 16 * 1024).await;
        self.tell(&said.map(|tail| tail.bytes).unwrap_or_default());
        self.remove(&id).await;
        Err(self.failure(format!("starting a sandbox: {problem}")))
    }

    /// Logs what a sandbox's main program printed.
    fn tell(&self, output: &[u8]) {
        for line in String::from_utf8_lossy(output).lines() {
            self.log.output(self.entry(Some(self.step.clone()), Level::Info, line));
        }
    }

    /// Removes the builder, if there is one.
    pub(super) async fn dismiss(&mut self) {
        if let Some(builder) = self.builder.take() {
            self.remove(&builder.id).await;
        }
    }

    async fn remove(&self, id: &SandboxId) {
        if let Err(error) = self.shop.control.kill(&self.owner, id).await {
            tracing::warn!(sandbox = %id, %error, "a builder stays until its time is up");
        }
    }
}
