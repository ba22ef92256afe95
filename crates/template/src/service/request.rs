//! Asking for a build, and starting it.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_core::{Error, ErrorKind, Result, TenantId};

use super::{Shop, TemplateService, unknown_build};
use crate::book::{Change, Pages};
use crate::build::work_off;
use crate::ids;
use crate::recipe::Recipe;
use crate::record::{Build, Status, Template};
use crate::reference::{self, DEFAULT_TAG, Reference};

const CPU_COUNT_MAX: u32 = 32;
const MEMORY_MIB_MIN: u32 = 128;
const MEMORY_MIB_MAX: u32 = 256 * 1024;

/// A build to make.
#[derive(Clone, Debug, Default)]
pub struct NewBuild {
    /// `[namespace/]name[:tag]`.
    pub name: String,
    /// More tags.
    pub tags: Vec<String>,
    /// Processors of its sandboxes.
    pub cpu_count: Option<u32>,
    /// Memory of its sandboxes in MiB.
    pub memory_mib: Option<u32>,
}

/// A build that now waits for its steps.
#[derive(Clone, Debug)]
pub struct Requested {
    /// Its template, perhaps a new one.
    pub template: Arc<Template>,
    /// The build.
    pub build: Arc<Build>,
}

impl TemplateService {
    /// Makes a build, and its template if there is none of that name.
    ///
    /// # Errors
    /// `Invalid`, naming the field; `Exhausted` at a limit.
    pub async fn request(&self, tenant: &TenantId, wanted: &NewBuild) -> Result<Requested> {
        let reference = Reference::parse(&wanted.name)?;
        if reference.namespace.as_deref().is_some_and(|namespace| namespace != tenant.as_str()) {
            let problem = format!("the namespace must be '{tenant}' or be left out");
            return Err(Error::invalid("name", problem));
        }
        check_resources(wanted)?;
        let tags = tags(&reference, &wanted.tags)?;
        let pen = self.shop.book.pen().await;
        let (template, pruned) = self.shop.room_for(&pen.read(), tenant, &reference, &tags)?;
        let now = (self.shop.now)();
        let mut template = template;
        (template.updated_at, template.build_count) = (now, template.build_count + 1);
        let build = Build {
            id: ids::build(),
            template: template.id.clone(),
            tenant: Some(tenant.to_string()),
            tags,
            status: Status::Waiting,
            begun: false,
            reason: None,
            cpu_count: wanted.cpu_count,
            memory_mib: wanted.memory_mib,
            created_at: now,
            updated_at: now,
            finished_at: None,
            made: None,
        };
        let mut changes: Vec<Change> = pruned.into_iter().map(Change::DropBuild).collect();
        changes.extend([Change::Template(template.clone()), Change::Build(build.clone())]);
        pen.write(changes).await?;
        Ok(Requested { template: Arc::new(template), build: Arc::new(build) })
    }

    /// Gives a build its steps; it starts as soon as there is room.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `Conflict` for a build that has begun, `Exhausted` at a limit.
    pub async fn begin(
        &self,
        tenant: &TenantId,
        template: &str,
        build: &str,
        recipe: Recipe,
    ) -> Result<()> {
        recipe.check()?;
        let id = self.build(tenant, template, build)?.id.clone();
        let pen = self.shop.book.pen().await;
        let found = pen.read().builds.get(&id).cloned().ok_or_else(|| unknown_build(&id))?;
        if found.begun {
            return Err(Error::conflict(format!(
                "build {id} has begun already: ask for a new one"
            )));
        }
        let max = self.shop.config.builds_pending_max;
        let of_tenant = |build: &&Arc<Build>| {
            build.begun && build.is_pending() && build.tenant.as_deref() == Some(tenant.as_str())
        };
        if pen.read().builds.values().filter(of_tenant).count() >= max {
            return Err(exhausted("builds at a time", max));
        }
        let mut begun = Arc::unwrap_or_clone(found);
        begun.begun = true;
        begun.updated_at = (self.shop.now)();
        pen.write(vec![Change::Build(begun.clone())]).await?;
        drop(pen);
        tokio::spawn(work_off(self.shop.clone(), tenant.clone(), Arc::new(begun), recipe));
        Ok(())
    }
}

impl Shop {
    /// The template for one more build, and old builds that make room for it.
    fn room_for(
        &self,
        pages: &Pages,
        tenant: &TenantId,
        reference: &Reference,
        tags: &[String],
    ) -> Result<(Template, Vec<String>)> {
        let is_it = |t: &&Arc<Template>| {
            t.is_of(tenant) && (t.names.contains(&reference.name) || t.id == reference.name)
        };
        let Some(template) = pages.templates.values().find(is_it) else {
            let max = self.config.templates_max;
            if pages.templates.values().filter(|t| t.is_of(tenant)).count() >= max {
                return Err(exhausted("templates", max));
            }
            return Ok((self.new_template(tenant, reference), Vec::new()));
        };
        let known: BTreeSet<&String> = template.tags.keys().chain(tags).collect();
        if known.len() > self.config.tags_max {
            return Err(exhausted("tags of a template", self.config.tags_max));
        }
        let mut builds: Vec<_> =
            pages.builds.values().filter(|build| build.template == template.id).collect();
        builds.sort_by_key(|build| build.created_at);
        let excess = (builds.len() + 1).saturating_sub(self.config.builds_kept_max);
        let is_tagged = |id: &String| template.tags.values().any(|tag| tag.build == *id);
        let is_busy = |build: &Build| build.begun && build.is_pending();
        let idle = builds.iter().filter(|build| !is_busy(build) && !is_tagged(&build.id));
        let pruned: Vec<String> = idle.take(excess).map(|build| build.id.clone()).collect();
        if pruned.len() < excess {
            return Err(exhausted("builds of a template", self.config.builds_kept_max));
        }
        Ok((Template::clone(template), pruned))
    }

    fn new_template(&self, tenant: &TenantId, reference: &Reference) -> Template {
        let now = (self.now)();
        Template {
            id: ids::template(),
            tenant: Some(tenant.to_string()),
            names: vec![reference.name.clone()],
            public: false,
            tags: std::collections::BTreeMap::new(),
            created_at: now,
            updated_at: now,
            build_count: 0,
            spawn_count: 0,
            last_spawned_at: None,
        }
    }
}

/// The tags of a new build: those it names, or `default`.
fn tags(reference: &Reference, more: &[String]) -> Result<Vec<String>> {
    let mut tags: BTreeSet<String> = reference.tag.clone().into_iter().collect();
    for tag in more {
        tags.insert(reference::tag(tag)?);
    }
    if tags.is_empty() {
        tags.insert(DEFAULT_TAG.to_owned());
    }
    Ok(tags.into_iter().collect())
}

fn check_resources(wanted: &NewBuild) -> Result<()> {
    if let Some(count) = wanted.cpu_count
        && !(count == 1 || (count.is_multiple_of(2) && (2..=CPU_COUNT_MAX).contains(&count)))
    {
        let problem = format!("{count} won't do: use 1 or an even number up to {CPU_COUNT_MAX}");
        return Err(Error::invalid("cpuCount", problem));
    }
    if let Some(mib) = wanted.memory_mib
        && !(mib.is_multiple_of(2) && (MEMORY_MIB_MIN..=MEMORY_MIB_MAX).contains(&mib))
    {
        let problem =
            format!("{mib} won't do: use an even number from {MEMORY_MIB_MIN} to {MEMORY_MIB_MAX}");
        return Err(Error::invalid("memoryMB", problem));
    }
    Ok(())
}

pub(super) fn exhausted(what: &str, max: usize) -> Error {
    let message = format!("the limit of {max} {what} is reached: remove some, or wait");
    Error::new(ErrorKind::Exhausted, message)
}
