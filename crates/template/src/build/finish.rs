//! The beginning and the end of a build.

use std::sync::Arc;

use atoll_core::{Result, TenantId};

use super::chain::Chain;
use super::{Failure, Work};
use crate::book::Change;
use crate::log::{Level, Log};
use crate::recipe::Recipe;
use crate::record::{Build, Made, Reason, Status, Tag, Template};
use crate::service::Shop;

impl Work {
    /// Tries out what the sandboxes will run, and remembers the whole.
    pub(super) async fn finish(&mut self, chain: &Chain, recipe: &Recipe) -> Result<Made, Failure> {
        let ready = match (&recipe.ready, &recipe.start) {
            (None, None) => self.made.ready.clone(),
            (ready, _) => ready.clone(),
        };
        self.made.ready = ready;
        if recipe.start.is_some() {
            self.made.start.clone_from(&recipe.start);
        }
        self.dismiss().await;
        if self.made.start.is_some() || self.made.ready.is_some() {
            let shown = self.made.start.as_deref().unwrap_or("(none)").to_owned();
            let step = self.step.clone();
            self.note(step, Level::Info, &format!("[finalize] starting: {shown}"));
            self.try_out().await?;
        }
        self.remember(chain.whole()).await?;
        Ok(self.made.clone())
    }
}

/// Does a build that is in the queue; its record tells how it ended, even after a fault of ours.
pub(crate) async fn work_off(shop: Arc<Shop>, tenant: TenantId, build: Arc<Build>, recipe: Recipe) {
    let log = shop.book.open_log(&build.id);
    let id = build.id.clone();
    let work = tokio::spawn(work(shop.clone(), tenant, build, recipe, log.clone()));
    if work.await.is_err() {
        let message = "an internal fault interrupted the build: start it again".to_owned();
        let reason = Some(Reason { message, step: None });
        if let Err(error) = shop.end_build(&id, None, reason, log).await {
            tracing::warn!(build = %id, %error, "the end of a build can't be written down");
        }
    }
    shop.pin(&id, None);
    shop.tidy().await;
}

async fn work(shop: Arc<Shop>, tenant: TenantId, build: Arc<Build>, recipe: Recipe, log: Arc<Log>) {
    let id = build.id.clone();
    let Ok(_slot) = shop.slots.clone().acquire_owned().await else { return };
    if let Err(error) = shop.change_build(&id, |build| build.status = Status::Building).await {
        tracing::warn!(build = %id, %error, "a build can't begin");
    }
    let mut work = Work::new(shop.clone(), tenant, build, log);
    let outcome = work.carry_out(&recipe).await;
    work.dismiss().await;
    let reason = match &outcome {
        Ok(_) => {
            work.note(None, Level::Info, "Build finished");
            None
        }
        Err(failure) => {
            let step = Some(failure.step.clone());
            work.note(step.clone(), Level::Error, &format!("Build failed: {}", failure.message));
            Some(Reason { message: failure.message.clone(), step })
        }
    };
    let log = work.log.clone();
    drop(work);
    let ended = shop.end_build(&id, outcome.ok(), reason, log).await;
    if let Err(error) = ended {
        tracing::warn!(build = %id, %error, "the end of a build can't be written down");
    }
}

impl Shop {
    /// Changes a build's record, if it is still there.
    pub(crate) async fn change_build(
        &self,
        id: &str,
        change: impl FnOnce(&mut Build),
    ) -> Result<()> {
        let pen = self.book.pen().await;
        let Some(build) = pen.read().builds.get(id).cloned() else { return Ok(()) };
        let mut build = Arc::unwrap_or_clone(build);
        change(&mut build);
        build.updated_at = (self.now)();
        pen.write(vec![Change::Build(build)]).await
    }

    /// Writes down how a build ended; a good one takes over its tags.
    pub(crate) async fn end_build(
        &self,
        id: &str,
        made: Option<Made>,
        reason: Option<Reason>,
        log: Arc<Log>,
    ) -> Result<()> {
        let now = (self.now)();
        let pen = self.book.pen().await;
        let Some(build) = pen.read().builds.get(id).cloned() else { return Ok(()) };
        let template = pen.read().templates.get(&build.template).cloned();
        let mut build = Arc::unwrap_or_clone(build);
        build.status = if made.is_some() { Status::Ready } else { Status::Error };
        (build.made, build.reason) = (made, reason);
        (build.updated_at, build.finished_at) = (now, Some(now));
        let mut changes = vec![Change::Log(id.to_owned(), log), Change::Build(build.clone())];
        if let Some(template) = template.filter(|_| build.status == Status::Ready) {
            let mut template = Template { updated_at: now, ..Arc::unwrap_or_clone(template) };
            for tag in build.tags {
                template.tags.insert(tag, Tag { build: id.to_owned(), created_at: now });
            }
            changes.push(Change::Template(template));
        }
        pen.write(changes).await
    }
}
