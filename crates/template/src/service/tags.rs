//! Tags: names for builds of a template.

use std::sync::Arc;

use atoll_core::{Error, Result, TenantId};

use super::request::exhausted;
use super::{TemplateService, unknown};
use crate::book::Change;
use crate::record::{Build, Tag, Template};
use crate::reference::{self, DEFAULT_TAG};

/// Tags in one request.
const TAGS_AT_ONCE_MAX: usize = 50;

impl TemplateService {
    /// Lets more tags point to the build that `target` means; answers them and the build.
    ///
    /// # Errors
    /// `NotFound` for the target, `Invalid` for a tag, `Exhausted` at a limit.
    pub async fn assign_tags(
        &self,
        tenant: &TenantId,
        target: &str,
        tags: &[String],
    ) -> Result<(Vec<String>, Arc<Build>)> {
        self.own(tenant, target)?;
        let tags = checked(tags)?;
        let pen = self.shop.book.pen().await;
        let found = self.find(tenant, target)?;
        let now = (self.shop.now)();
        let mut template = Template::clone(&found.template);
        for tag in &tags {
            let tag_to = Tag { build: found.build.id.clone(), created_at: now };
            template.tags.insert(tag.clone(), tag_to);
        }
        if template.tags.len() > self.shop.config.tags_max {
            return Err(exhausted("tags of a template", self.shop.config.tags_max));
        }
        template.updated_at = now;
        pen.write(vec![Change::Template(template)]).await?;
        Ok((tags, found.build))
    }

    /// Removes tags; those that aren't there are fine.
    ///
    /// # Errors
    /// `NotFound` for the template, `Invalid` for a tag that can't be removed.
    pub async fn remove_tags(&self, tenant: &TenantId, name: &str, tags: &[String]) -> Result<()> {
        let id = self.own(tenant, name)?.id.clone();
        let tags = checked(tags)?;
        if tags.iter().any(|tag| tag == DEFAULT_TAG) {
            let problem = format!("'{DEFAULT_TAG}' can't be removed: assign it to another build");
            return Err(Error::invalid("tags", problem));
        }
        let pen = self.shop.book.pen().await;
        let found = pen.read().templates.get(&id).cloned();
        let mut template = Arc::unwrap_or_clone(found.ok_or_else(|| unknown(name))?);
        template.tags.retain(|tag, _| !tags.contains(tag));
        template.updated_at = (self.shop.now)();
        pen.write(vec![Change::Template(template)]).await
    }
}

fn checked(tags: &[String]) -> Result<Vec<String>> {
    if tags.is_empty() || tags.len() > TAGS_AT_ONCE_MAX {
        return Err(Error::invalid("tags", format!("send 1 to {TAGS_AT_ONCE_MAX} of them")));
    }
    tags.iter().map(|tag| reference::tag(tag)).collect()
}
