//! `Control`: reads come from the view, changes go to the actor.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use atoll_control::{
    Access, BoxedIo, Control, Create, Filter, LogTail, MetadataPatch, Page, Paging, Port,
    SnapshotFilter, Usage,
};
use atoll_core::{
    Action, Deadline, Error, Lifecycle, Phase, Result, Sandbox, SandboxId, Snapshot, SnapshotId,
    Source, TenantId, Wish,
};

use super::Engine;
use crate::actor::{Edit, Request};
use crate::ids;

fn no_sandbox(id: &SandboxId) -> Error {
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

/// Takes as long for a wrong token as for the right one.
fn same_token(given: &str, right: &str) -> bool {
    let pairs = given.bytes().zip(right.bytes());
    given.len() == right.len() && pairs.fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

impl Engine {
    fn visible(&self, tenant: &TenantId, id: &SandboxId) -> Result<Arc<Sandbox>> {
        let sandbox = self.0.view.sandbox(id).filter(|sandbox| sandbox.tenant == *tenant);
        sandbox.ok_or_else(|| no_sandbox(id))
    }

    async fn edit(&self, tenant: &TenantId, id: &SandboxId, edit: Edit) -> Result<Arc<Sandbox>> {
        self.visible(tenant, id)?;
        self.ask(|reply| Request::Edit { id: id.clone(), edit, reply }).await
    }

    fn reachable(&self, access: &Access, id: &SandboxId) -> Result<Arc<Sandbox>> {
        let sandbox = self.0.view.sandbox(id).ok_or_else(|| no_sandbox(id))?;
        let allowed = match access {
            Access::Tenant(tenant) => sandbox.tenant == *tenant,
            Access::Token(token) => same_token(token, &sandbox.access_token),
            Access::Signed => true,
        };
        if allowed { Ok(sandbox) } else { Err(no_sandbox(id)) }
    }
}

#[async_trait]
impl Control for Engine {
    async fn create(&self, tenant: &TenantId, create: Create) -> Result<Arc<Sandbox>> {
        let now = self.0.clock.now();
        let Create { mut spec, lifetime, on_expiry } = create;
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
            life: Lifecycle::new(now, deadline),
        };
        self.0.runtime.check(&sandbox).await?;
        self.ask(|reply| Request::Create { sandbox: Box::new(sandbox), auth, reply }).await
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

    async fn pause(&self, tenant: &TenantId, id: &SandboxId) -> Result<Arc<Sandbox>> {
        if !self.0.runtime.capabilities().pause {
            return Err(Error::unsupported("sandboxes can't be paused on this machine"));
        }
        self.edit(tenant, id, Edit::Wish(Wish::Pause)).await
    }

    async fn resume(&self, tenant: &TenantId, id: &SandboxId) -> Result<Arc<Sandbox>> {
        self.edit(tenant, id, Edit::Wish(Wish::Resume)).await
    }

    async fn kill(&self, tenant: &TenantId, id: &SandboxId) -> Result<()> {
        self.edit(tenant, id, Edit::Wish(Wish::Kill)).await.map(drop)
    }

    async fn set_deadline(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        deadline: Option<Deadline>,
    ) -> Result<Arc<Sandbox>> {
        self.edit(tenant, id, Edit::Deadline(deadline)).await
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

    async fn usage(&self, tenant: &TenantId, id: &SandboxId) -> Result<Usage> {
        self.visible(tenant, id)?;
        self.0.runtime.usage(id).await
    }

    fn check(&self, access: &Access, id: &SandboxId) -> Result<()> {
        match self.reachable(access, id)?.life.phase() {
            Phase::Running => Ok(()),
            Phase::Pausing | Phase::Paused => {
                Err(Error::conflict(format!("sandbox {id} is paused; resume it first"))
                    .with_reason("SANDBOX_PAUSED"))
            }
            Phase::Queued
            | Phase::Starting
            | Phase::Resuming
            | Phase::Stopping
            | Phase::Ended
            | Phase::Failed
            | Phase::Gone => Err(Error::conflict(format!(
                "sandbox {id} is not running; look at its state for the reason"
            ))
            .with_reason("SANDBOX_NOT_RUNNING")),
        }
    }

    async fn connect(&self, access: &Access, id: &SandboxId, port: Port) -> Result<BoxedIo> {
        self.check(access, id)?;
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

    async fn delete_snapshot(&self, tenant: &TenantId, id: &SnapshotId) -> Result<()> {
        self.get_snapshot(tenant, id).await?;
        self.ask(|reply| Request::DeleteSnapshot { id: id.clone(), reply }).await.map(drop)
    }
}
