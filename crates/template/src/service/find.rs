//! Which template a reference means.

use std::sync::Arc;

use atoll_core::{Error, ErrorKind, Result, TenantId};

use super::{Shop, TemplateService, unknown};
use crate::record::{Build, Status, Template};
use crate::reference::Reference;

/// A template and one of its builds.
#[derive(Clone, Debug)]
pub struct Found {
    /// The template.
    pub template: Arc<Template>,
    /// The build that the reference's tag points to.
    pub build: Arc<Build>,
}

impl TemplateService {
    /// The template that a reference means for this caller, whatever its tag.
    ///
    /// # Errors
    /// `Invalid` for what is no reference, `NotFound` for what isn't there for this caller.
    pub fn template(&self, tenant: &TenantId, reference: &str) -> Result<Arc<Template>> {
        let parsed = Reference::parse(reference)?;
        self.shop.template(tenant, &parsed).ok_or_else(|| unknown(&parsed.name))
    }

    /// The same, but only one that the caller may change.
    ///
    /// # Errors
    /// As for `template`; `Forbidden` for a template of somebody else.
    pub fn own(&self, tenant: &TenantId, reference: &str) -> Result<Arc<Template>> {
        let template = self.template(tenant, reference)?;
        if template.is_of(tenant) {
            return Ok(template);
        }
        let message = format!("template '{}' is not yours to change", template.names.join("', '"));
        Err(Error::new(ErrorKind::Forbidden, message))
    }

    /// The build that a reference means for this caller.
    ///
    /// # Errors
    /// As for `template`, and `NotFound` for an unknown tag.
    pub fn find(&self, tenant: &TenantId, reference: &str) -> Result<Found> {
        self.shop.find(tenant, &Reference::parse(reference)?)
    }
}

impl Shop {
    /// Own templates come before built-in ones; those of others need their namespace, or their id.
    pub(crate) fn template(&self, tenant: &TenantId, wanted: &Reference) -> Option<Arc<Template>> {
        let pages = self.book.read();
        let is_named = |template: &Template| template.names.contains(&wanted.name);
        if let Some(namespace) = wanted.namespace.as_deref().filter(|ns| *ns != tenant.as_str()) {
            let of_theirs = |t: &&Arc<Template>| {
                t.tenant.as_deref() == Some(namespace) && t.is_open_to(tenant) && is_named(t)
            };
            return pages.templates.values().find(of_theirs).cloned();
        }
        let own = pages.templates.values().find(|t| t.is_of(tenant) && is_named(t)).cloned();
        let by_id = || pages.templates.get(&wanted.name).filter(|t| t.is_open_to(tenant)).cloned();
        let built_in = || {
            let found = self.built_ins.iter().find(|built_in| built_in.answers_to(&wanted.name));
            found.filter(|_| wanted.namespace.is_none()).map(|found| Arc::new(found.template()))
        };
        own.or_else(by_id).or_else(built_in)
    }

    /// The build that a reference means.
    pub(crate) fn find(&self, tenant: &TenantId, wanted: &Reference) -> Result<Found> {
        let template = self.template(tenant, wanted).ok_or_else(|| unknown(&wanted.name))?;
        let tag = template.tags.get(wanted.tag());
        if template.tenant.is_none()
            && tag.is_some()
            && let Some(built_in) = self.built_ins.iter().find(|b| b.answers_to(&template.id))
        {
            return Ok(Found { template, build: Arc::new(built_in.build()) });
        }
        let build = tag.and_then(|tag| self.book.read().builds.get(&tag.build).cloned());
        match build {
            Some(build) => Ok(Found { template, build }),
            None if template.tags.is_empty() => Err(not_built(&wanted.name)),
            None => {
                let (tag, name) = (wanted.tag(), &wanted.name);
                let message = format!("tag '{tag}' does not exist for template '{name}'");
                Err(Error::new(ErrorKind::NotFound, message))
            }
        }
    }

    /// The same, once sandboxes can be made from it.
    pub(crate) async fn find_ready(&self, tenant: &TenantId, reference: &str) -> Result<Found> {
        let wanted = Reference::parse(reference)?;
        let mut found = self.find(tenant, &wanted)?;
        if found.template.tenant.is_none()
            && let Some(built_in) =
                self.built_ins.iter().find(|built_in| built_in.answers_to(&found.template.id))
        {
            built_in.wait(self.config.built_in_patience).await?;
            found.build = Arc::new(built_in.build());
        }
        match found.build.status {
            Status::Ready => Ok(found),
            Status::Waiting | Status::Building | Status::Error => Err(not_built(&wanted.name)),
        }
    }
}

fn not_built(name: &str) -> Error {
    let message = format!("template '{name}' not found: it has no build that is ready");
    Error::new(ErrorKind::NotFound, message)
}
