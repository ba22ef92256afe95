//! `Control`: reads come from the view, changes go to the actor.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use atoll_control::{
    Access, BoxedIo, Control, Create, Filter, LogTail, MetadataPatch, Page, Paging, Port, Sample,
    SnapshotFilter, Usage,
};
use atoll_core::{
    Action, Aging, Deadline, Error, Keep, Lifecycle, Phase, Result, Sandbox, SandboxId, Snapshot,
    SnapshotId, Source, TenantId,
};
use tokio::sync::oneshot;

use super::{Engine, stopped};
use crate::actor::{Edit, ForkRequest, Request};
use crate::ids;
use crate::interest::Interest;

/// Copies one request may ask for.
const FORKS_MAX: usize = 100;

pub(super) fn no_sandbox(id: &SandboxId) -> Error {
    Error::not_found(format_args!("sandbox {id}"))
}

fn no_snapshot(id: &SnapshotId) -> Error {
    Error::not_found(format_args!("snapshot {id}"))
}

/// Nothing will happen to it until somebody wishes something. Cleaning up after a failure is
/// nothing a user waits for.
fn is_at_rest(life: &Lifecycle) -> bool {
    matches!(life.plan(), None | Some(Action::Remove))
}

impl Engine {
    pub(super) fn visible(&self, tenant: &TenantId, id: &SandboxId) -> Result<Arc<Sandbox>> {
        let sandbox = self.0.view.sandbox(id).filter(|sandbox| sandbox.tenant == *tenant);
        sandbox.ok_or_else(|| no_sandbox(id))
    }

    /// Asks for a sandbox. Until the interest is satisfied, dropping it removes the sandbox.
    async fn begin(&self, tenant: &TenantId, create: Create) -> Result<(Arc<Sandbox>, Interest)> {
        let now = self.0.clock.now();
        let Create { mut spec, lifetime, on_expiry, claim } = create;
        let auth = match &mut spec.source {
            Source::Image(image) => image.auth.take(),
            Source::Snapshot(_) => None,
        };
        let deadline = lifetime.map(|l| Deadline { at: now.saturating_add(l), then: on_expiry });
        let sandbox = Sandbox {
            id: SandboxId::parse(&ids::name(now, &self.0.random))?,
            tenant: tenant.clone(),
            spec,
            created_at: now,
            access_token: ids::token(&self.0.random),
            stock_of: None,
            life: Lifecycle::new(now, deadline),
        };
        self.0.runtime.check(&sandbox).await?;
        let (interest, seat) = Interest::new(self.0.abandoned.clone());
        let sandbox = Box::new(sandbox);
        let request = |reply| Request::Create { sandbox, auth, claim, seat, reply };
        Ok((self.ask(request).await?, interest))
    }

    async fn fork_sandbox(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        count: usize,
        lifetime: Option<Duration>,
        forget: &[&str],
    ) -> Result<Vec<Result<Arc<Sandbox>>>> {
        if !self.0.runtime.capabilities().snapshot {
            return Err(Error::unsupported("sandboxes can't be forked on this machine"));
        }
        if !(1..=FORKS_MAX).contains(&count) {
            return Err(Error::invalid("count", format!("ask for 1 to {FORKS_MAX} copies")));
        }
        self.visible(tenant, id)?;
        let snapshot = SnapshotId::parse(&ids::name(self.0.clock.now(), &self.0.random))?;
        let (mut copies, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (interest, seat) = Interest::new(self.0.abandoned.clone());
            let (reply, answer) = oneshot::channel();
            copies.push((seat, reply));
            waiting.push((interest, answer));
        }
        let id = id.clone();
        let forget = forget.iter().map(|&name| name.to_owned()).collect();
        let request = |begun| {
            let request = ForkRequest { id, snapshot, lifetime, forget, copies, begun };
            Request::Fork(Box::new(request))
        };
        self.ask(request).await?;
        let mut made = Vec::new();
        for (interest, answer) in waiting {
            let answer = answer.await.unwrap_or_else(|_| Err(stopped()));
            made.push((interest, answer));
        }
        // Only now nobody can go away any more.
        Ok(made
            .into_iter()
            .map(|(interest, answer)| {
                interest.satisfied();
                answer
            })
            .collect())
    }

    pub(super) async fn edit(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        edit: Edit,
    ) -> Result<Arc<Sandbox>> {
        self.visible(tenant, id)?;
        self.ask(|reply| Request::Edit { id: id.clone(), edit, reply }).await
    }
}

#[async_trait]
impl Control for Engine {
    async fn create(&self, tenant: &TenantId, create: Create) -> Result<Arc<Sandbox>> {
        let (sandbox, interest) = self.begin(tenant, create).await?;
        interest.satisfied();
        Ok(sandbox)
    }

    async fn create_and_wait(
        &self,
        tenant: &TenantId,
        create: Create,
        patience: Duration,
    ) -> Result<Arc<Sandbox>> {
        let (sandbox, interest) = self.begin(tenant, create).await?;
        let sandbox = self.wait(tenant, &sandbox.id, patience).await?;
        match sandbox.life.phase() {
            Phase::Running | Phase::Pausing | Phase::Paused | Phase::Resuming => {
                interest.satisfied();
            }
            Phase::Queued
            | Phase::Starting
            | Phase::Stopping
            | Phase::Ended
            | Phase::Failed
            | Phase::Gone => drop(interest),
        }
        Ok(sandbox)
    }

    async fn get(&self, tenant: &TenantId, id: &SandboxId) -> Result<Arc<Sandbox>> {
        self.visible(tenant, id)
    }

    async fn list(
        &self,
        tenant: &TenantId,
        filter: &Filter,
        paging: Paging,
    ) -> Result<Page<Arc<Sandbox>>> {
        Ok(self.0.view.page(tenant, filter, paging))
    }

    async fn wait(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        patience: Duration,
    ) -> Result<Arc<Sandbox>> {
        self.visible(tenant, id)?;
        let mut changes = self.0.view.subscribe(id).ok_or_else(|| no_sandbox(id))?;
        let rest = changes.wait_for(|sandbox| is_at_rest(&sandbox.life));
        match tokio::time::timeout(patience, rest).await {
            Ok(Ok(sandbox)) => return Ok(sandbox.clone()),
            Ok(Err(_hidden)) => return Err(no_sandbox(id)),
            Err(_impatient) => {}
        }
        self.visible(tenant, id)
    }

    async fn pause(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        keep: Keep,
        aging: Aging,
    ) -> Result<Arc<Sandbox>> {
        if !self.0.runtime.capabilities().pause {
            return Err(Error::unsupported("sandboxes can't be paused on this machine"));
        }
        self.edit(tenant, id, Edit::Pause(keep, aging)).await
    }

    async fn resume(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        until: Option<Deadline>,
    ) -> Result<Arc<Sandbox>> {
        self.edit(tenant, id, Edit::Resume(until)).await
    }

    async fn kill(&self, tenant: &TenantId, id: &SandboxId) -> Result<()> {
        self.edit(tenant, id, Edit::Kill).await.map(drop)
    }

    async fn set_deadline(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        deadline: Option<Deadline>,
    ) -> Result<Arc<Sandbox>> {
        self.edit(tenant, id, Edit::Deadline(deadline)).await
    }

    async fn extend(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        deadline: Deadline,
    ) -> Result<Arc<Sandbox>> {
        self.edit(tenant, id, Edit::Extend(deadline)).await
    }

    async fn patch_metadata(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        patch: MetadataPatch,
    ) -> Result<Arc<Sandbox>> {
        self.edit(tenant, id, Edit::Metadata(patch)).await
    }

    async fn logs(&self, tenant: &TenantId, id: &SandboxId, bytes_max: usize) -> Result<LogTail> {
        self.visible(tenant, id)?;
        match (self.0.runtime.logs(id, bytes_max).await, self.0.view.last_log(id)) {
            (Err(_), Some(mut log)) => {
                let excess = log.bytes.len().saturating_sub(bytes_max);
                log.bytes.drain(..excess);
                log.truncated |= excess > 0;
                Ok(log)
            }
            (told, _) => told,
        }
    }

    async fn samples(&self, tenant: &TenantId, id: &SandboxId) -> Result<Vec<Sample>> {
        self.visible(tenant, id)?;
        Ok(self.0.view.samples(id))
    }

    async fn usage(&self, tenant: &TenantId, id: &SandboxId) -> Result<Usage> {
        self.visible(tenant, id)?;
        self.0.runtime.usage(id).await
    }

    async fn check(&self, access: &Access, id: &SandboxId) -> Result<()> {
        self.awake(access, id).await
    }

    async fn connect(&self, access: &Access, id: &SandboxId, port: Port) -> Result<BoxedIo> {
        self.awake(access, id).await?;
        self.0.runtime.connect(id, port).await
    }

    async fn snapshot(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        name: Option<String>,
    ) -> Result<Arc<Snapshot>> {
        if !self.0.runtime.capabilities().snapshot {
            return Err(Error::unsupported("snapshots can't be taken on this machine"));
        }
        self.visible(tenant, id)?;
        let snapshot = SnapshotId::parse(&ids::name(self.0.clock.now(), &self.0.random))?;
        self.ask(|reply| Request::Keep { id: id.clone(), snapshot, name, reply }).await
    }

    async fn get_snapshot(&self, tenant: &TenantId, id: &SnapshotId) -> Result<Arc<Snapshot>> {
        let snapshot = self.0.view.snapshot(id).filter(|snapshot| snapshot.tenant == *tenant);
        snapshot.ok_or_else(|| no_snapshot(id))
    }

    async fn list_snapshots(
        &self,
        tenant: &TenantId,
        filter: &SnapshotFilter,
    ) -> Result<Vec<Arc<Snapshot>>> {
        Ok(self.0.view.snapshots(tenant, filter))
    }

    async fn fork(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        count: usize,
        lifetime: Option<Duration>,
        forget: &[&str],
    ) -> Result<Vec<Result<Arc<Sandbox>>>> {
        self.fork_sandbox(tenant, id, count, lifetime, forget).await
    }

    async fn delete_snapshot(&self, tenant: &TenantId, id: &SnapshotId) -> Result<()> {
        self.get_snapshot(tenant, id).await?;
        self.ask(|reply| Request::DeleteSnapshot { id: id.clone(), reply }).await.map(drop)
    }
}
