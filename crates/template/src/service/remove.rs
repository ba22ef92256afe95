//! Removing templates and snapshots.

use std::sync::Arc;

use atoll_control::{Filter, Paging};
use atoll_core::{Error, ErrorKind, Phase, Result, TenantId};

use super::{TemplateService, unknown};
use crate::book::Change;
use crate::record::{Build, Template};
use crate::reference::Reference;

/// Sandboxes in these phases need their template's files.
const ALIVE: [Phase; 6] = [
    Phase::Queued,
    Phase::Starting,
    Phase::Running,
    Phase::Pausing,
    Phase::Paused,
    Phase::Resuming,
];

impl TemplateService {
    /// Removes a template with all its builds, or a snapshot.
    ///
    /// # Errors
    /// `NotFound`; `Forbidden` for somebody else's; `Invalid` while sandboxes use it; `Conflict`
    /// while it is being built.
    pub async fn remove(&self, tenant: &TenantId, reference: &str) -> Result<()> {
        let wanted = Reference::parse(reference)?;
        if self.shop.template(tenant, &wanted).is_none() {
            return self.remove_snapshot(tenant, &wanted).await;
        }
        let template = self.own(tenant, reference)?;
        self.check_unused(tenant, &template).await?;
        let pen = self.shop.book.pen().await;
        let builds: Vec<Arc<Build>> = {
            let pages = pen.read();
            pages.builds.values().filter(|build| build.template == template.id).cloned().collect()
        };
        if let Some(build) = builds.iter().find(|build| build.begun && build.is_pending()) {
            let message =
                format!("template '{reference}' is being built ({}): wait for it", build.id);
            return Err(Error::conflict(message));
        }
        let mut changes = vec![Change::DropTemplate(template.id.clone())];
        changes.extend(builds.iter().map(|build| Change::DropBuild(build.id.clone())));
        pen.write(changes).await?;
        drop(pen);
        let shop = self.shop.clone();
        // Files may be large; nobody has to wait for them.
        tokio::spawn(async move { shop.tidy().await });
        Ok(())
    }

    async fn check_unused(&self, tenant: &TenantId, template: &Template) -> Result<()> {
        let template_id = Some(template.id.clone());
        let filter = Filter { phases: ALIVE.to_vec(), template: template_id, ..Filter::default() };
        let page = self.shop.control.list(tenant, &filter, Paging { skip: 0, take: 1 }).await?;
        let Some(user) = page.items.first() else { return Ok(()) };
        let message = format!(
            "cannot delete template '{}' because sandboxes use it, such as {}: remove them first",
            template.names.first().unwrap_or(&template.id),
            user.id
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }

    async fn remove_snapshot(&self, tenant: &TenantId, wanted: &Reference) -> Result<()> {
        let snapshot = self.shop.snapshot(tenant, wanted).await;
        let id = snapshot.ok_or_else(|| unknown(&wanted.name))?.id.clone();
        let removed = self.shop.control.delete_snapshot(tenant, &id).await;
        removed.map_err(|error| match error.kind() {
            ErrorKind::Conflict => Error::new(ErrorKind::Invalid, error.message()),
            _ => error,
        })?;
        let pen = self.shop.book.pen().await;
        pen.write(vec![Change::DropOrigin(id.to_string())]).await
    }
}
