//! From a reference to what a sandbox shall be.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use atoll_control::{SnapshotFilter, Templates};
use atoll_core::{
    GuestDefaults, ReadyCheck, Result, SandboxSpec, Snapshot, SnapshotId, SnapshotState, Source,
    TemplateOrigin, TenantId,
};

use super::{Shop, TemplateService, unknown};
use crate::book::Change;
use crate::build::{self, SNAPSHOT_PREFIX};
use crate::record::{Origin, Setting};
use crate::reference::Reference;

/// Snapshots whose origin is remembered, over all tenants.
const ORIGINS_MAX: usize = 10_000;

#[async_trait]
impl Templates for TemplateService {
    async fn resolve(&self, tenant: &TenantId, reference: &str) -> Result<SandboxSpec> {
        let wanted = Reference::parse(reference)?;
        if self.shop.template(tenant, &wanted).is_none() {
            let snapshot = self.shop.snapshot(tenant, &wanted).await;
            let snapshot = snapshot.ok_or_else(|| unknown(&wanted.name))?;
            return self.shop.snapshot_spec(tenant, &snapshot).await;
        }
        let found = self.shop.find_ready(tenant, reference).await?;
        let made = found.build.made.as_ref().ok_or_else(|| unknown(&wanted.name))?;
        let mut spec = made.spec(self.shop.config.ready_time_max)?;
        spec.resources = build::resources(&found.build);
        let named = found.template.names.iter().find(|name| **name == wanted.name);
        spec.template = Some(TemplateOrigin {
            id: found.template.id.clone(),
            alias: named.or(found.template.names.first()).cloned(),
            build: found.build.id.clone(),
        });
        Ok(spec)
    }
}

impl TemplateService {
    /// Counts a sandbox that was made from a template.
    pub fn spawned(&self, template: &str) {
        self.shop.book.count_spawn(template, (self.shop.now)());
    }

    /// Remembers what a snapshot of the user's own was taken from, so that sandboxes made from it
    /// are like that one even when it is gone.
    pub async fn remember_snapshot(
        &self,
        tenant: &TenantId,
        snapshot: &SnapshotId,
        taken_from: &SandboxSpec,
    ) -> Result<()> {
        let pen = self.shop.book.pen().await;
        if pen.read().origins.len() >= ORIGINS_MAX {
            // Only comfort is lost.
            return Ok(());
        }
        let origin = Origin::of(tenant, taken_from);
        pen.write(vec![Change::Origin(snapshot.to_string(), origin)]).await
    }
}

impl Shop {
    /// The user's own snapshot that a reference means.
    pub(super) async fn snapshot(
        &self,
        tenant: &TenantId,
        wanted: &Reference,
    ) -> Option<Arc<Snapshot>> {
        if wanted.namespace.as_deref().is_some_and(|namespace| namespace != tenant.as_str()) {
            return None;
        }
        let is_ours = |snapshot: &Arc<Snapshot>| {
            snapshot.name.as_ref().is_some_and(|name| name.starts_with(SNAPSHOT_PREFIX))
        };
        if wanted.tag.is_none()
            && let Ok(id) = SnapshotId::parse(&wanted.name)
            && let Ok(found) = self.control.get_snapshot(tenant, &id).await
            && !is_ours(&found)
            && found.state != SnapshotState::Deleting
        {
            return Some(found);
        }
        let tagged = format!("{}:{}", wanted.name, wanted.tag());
        let full = format!("{tenant}/{tagged}");
        let plain = wanted.tag.is_none().then(|| wanted.name.clone());
        let mut best: Option<Arc<Snapshot>> = None;
        for name in [Some(tagged), Some(full), plain].into_iter().flatten() {
            let filter = SnapshotFilter { sandbox: None, name: Some(name) };
            let found = self.control.list_snapshots(tenant, &filter).await.unwrap_or_default();
            let usable = |s: &Arc<Snapshot>| s.state == SnapshotState::Ready && !is_ours(s);
            best = best
                .into_iter()
                .chain(found.into_iter().filter(usable))
                .max_by_key(|s| s.created_at);
        }
        best
    }

    /// A sandbox with a snapshot's files, otherwise like the one that it was taken from.
    async fn snapshot_spec(&self, tenant: &TenantId, snapshot: &Snapshot) -> Result<SandboxSpec> {
        let known = self.book.read().origins.get(snapshot.id.as_str()).cloned();
        let source = Source::Snapshot(snapshot.id.clone());
        let mut spec = match known.filter(|origin| origin.tenant == tenant.as_str()) {
            Some(origin) => origin.spec(source),
            None => match self.control.get(tenant, &snapshot.sandbox).await {
                Ok(sandbox) => Origin::of(tenant, &sandbox.spec).spec(source),
                // It is gone, and nobody said what it was.
                Err(_) => self.plain(source),
            },
        };
        spec.template.get_or_insert_with(|| TemplateOrigin {
            id: snapshot.id.to_string(),
            alias: snapshot.name.clone(),
            build: snapshot.id.to_string(),
        });
        Ok(spec)
    }

    fn plain(&self, source: Source) -> SandboxSpec {
        let Setting { user, home, .. } = Setting::default();
        let mut spec = SandboxSpec::new(source);
        spec.guest = GuestDefaults { user: Some(user), workdir: Some(home) };
        spec
    }
}

impl Origin {
    fn of(tenant: &TenantId, spec: &SandboxSpec) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let template = spec.template.as_ref();
        Self {
            tenant: tenant.to_string(),
            env: spec.env.clone(),
            entrypoint: spec.entrypoint.clone(),
            user: spec.guest.user.clone(),
            workdir: spec.guest.workdir.clone(),
            ready: spec
                .ready
                .as_ref()
                .map(|ready| (ready.command.clone(), millis(ready.every), millis(ready.within))),
            cpu_millis: spec.resources.cpu_millis,
            memory_bytes: spec.resources.memory_bytes,
            template: template.map(|t| (t.id.clone(), t.alias.clone(), t.build.clone())),
        }
    }

    fn spec(&self, source: Source) -> SandboxSpec {
        let mut spec = SandboxSpec::new(source);
        spec.env.clone_from(&self.env);
        spec.entrypoint.clone_from(&self.entrypoint);
        spec.guest = GuestDefaults { user: self.user.clone(), workdir: self.workdir.clone() };
        spec.ready = self.ready.as_ref().map(|(command, every, within)| ReadyCheck {
            command: command.clone(),
            every: Duration::from_millis(*every),
            within: Duration::from_millis(*within),
        });
        spec.resources.cpu_millis = self.cpu_millis;
        spec.resources.memory_bytes = self.memory_bytes;
        let template = self.template.clone();
        spec.template = template.map(|(id, alias, build)| TemplateOrigin { id, alias, build });
        spec
    }
}
