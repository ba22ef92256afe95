//! Templates as doors see them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use atoll_control::{Control, Documents};
use atoll_core::{Error, ErrorKind, Result, TenantId, Timestamp};
use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::Semaphore;

mod find;
mod remove;
mod request;
mod resolve;
mod tags;

use crate::book::{Book, Change};
use crate::built_in::BuiltIn;
use crate::config::TemplateConfig;
use crate::log::{Level, LogEntry};
use crate::record::{Build, Reason, Status, Template};
use crate::uploads::{Grant, Presence, Uploads};

pub use find::Found;
pub use request::{NewBuild, Requested};

/// Tells the time.
pub(crate) type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Everything that builds and readers share.
pub(crate) struct Shop {
    pub(crate) config: TemplateConfig,
    pub(crate) control: Arc<dyn Control>,
    pub(crate) built_ins: Vec<BuiltIn>,
    pub(crate) now: Now,
    pub(crate) book: Book,
    pub(crate) uploads: Uploads,
    pub(crate) slots: Arc<Semaphore>,
    /// Snapshots that builds at work stand on, by build.
    pins: Mutex<BTreeMap<String, String>>,
}

impl Shop {
    /// To whom a tenant's builders and snapshots belong.
    pub(crate) fn owner(&self, tenant: &TenantId) -> TenantId {
        self.config.builder_tenant.clone().unwrap_or_else(|| tenant.clone())
    }

    /// Holds on to a snapshot for a build, or lets go.
    pub(crate) fn pin(&self, build: &str, snapshot: Option<&str>) {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        match snapshot {
            Some(snapshot) => pins.insert(build.to_owned(), snapshot.to_owned()),
            None => pins.remove(build),
        };
    }

    pub(crate) fn pinned(&self) -> BTreeSet<String> {
        let pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.values().cloned().collect()
    }
}

/// Keeps and builds templates.
pub struct TemplateService {
    shop: Arc<Shop>,
}

impl TemplateService {
    /// Reads what was written down, ends builds that a restart interrupted, and removes in the
    /// background what they left. `built_ins` are there besides; give at least `base`.
    pub async fn start(
        config: TemplateConfig,
        control: Arc<dyn Control>,
        documents: Arc<dyn Documents>,
        built_ins: Vec<BuiltIn>,
        now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Result<Arc<Self>> {
        let book = Book::open(documents).await?;
        let uploads = Uploads::open(&config).await?;
        let slots = Arc::new(Semaphore::new(config.builds_at_once.max(1)));
        let pins = Mutex::default();
        let shop = Arc::new(Shop { config, control, built_ins, now, book, uploads, slots, pins });
        end_interrupted(&shop).await?;
        let sweeping = shop.clone();
        tokio::spawn(async move { sweeping.sweep().await });
        Ok(Arc::new(Self { shop }))
    }

    /// Whether files of that name are here, and the permission to send them.
    ///
    /// # Errors
    /// `NotFound` when the template isn't the caller's, `Invalid` for a bad name.
    pub async fn presence(
        &self,
        tenant: &TenantId,
        template: &str,
        hash: &str,
    ) -> Result<Presence> {
        self.own(tenant, template)?;
        self.shop.uploads.presence(tenant, hash, (self.shop.now)()).await
    }

    /// Takes files of exactly `length` bytes from whoever holds a grant.
    ///
    /// # Errors
    /// `Forbidden` for a bad grant, `Invalid` for bad bytes (`UPLOAD_TOO_LARGE`).
    pub async fn receive<E: std::fmt::Display>(
        &self,
        grant: &Grant,
        hash: &str,
        length: u64,
        body: impl Stream<Item = std::result::Result<Bytes, E>>,
    ) -> Result<()> {
        self.shop.uploads.receive(grant, hash, length, (self.shop.now)(), body).await
    }

    /// One build of one of the caller's templates.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn build(&self, tenant: &TenantId, template: &str, build: &str) -> Result<Arc<Build>> {
        let template = self.own(tenant, template)?;
        let found = self.shop.book.read().builds.get(build).cloned();
        found.filter(|build| build.template == template.id).ok_or_else(|| unknown_build(build))
    }

    /// What a build said: up to `limit` entries of `level` or above after the first `offset`.
    pub fn log(&self, build: &Build, offset: usize, limit: usize, level: Level) -> Vec<LogEntry> {
        let log = self.shop.book.read().logs.get(&build.id).cloned();
        log.map(|log| log.window(offset, limit, level)).unwrap_or_default()
    }

    /// The caller's own templates, newest first.
    pub fn templates(&self, tenant: &TenantId) -> Vec<Arc<Template>> {
        let pages = self.shop.book.read();
        let mut own: Vec<_> =
            pages.templates.values().filter(|t| t.is_of(tenant)).cloned().collect();
        own.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
        own
    }

    /// The templates that the server brings along.
    pub fn built_ins(&self) -> Vec<Arc<Template>> {
        self.shop.built_ins.iter().map(|built_in| Arc::new(built_in.template())).collect()
    }

    /// All builds of a template, newest first.
    pub fn builds(&self, template: &Template) -> Vec<Arc<Build>> {
        let mut builds: Vec<_> = {
            let pages = self.shop.book.read();
            pages.builds.values().filter(|build| build.template == template.id).cloned().collect()
        };
        let of_ours = self.shop.built_ins.iter().filter(|b| b.answers_to(&template.id));
        builds.extend(of_ours.map(|built_in| Arc::new(built_in.build())));
        builds.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
        builds
    }

    /// The build that stands for a template in lists: the default one, else the newest.
    pub fn main_build(&self, template: &Template) -> Option<Arc<Build>> {
        let builds = self.builds(template);
        let default = template.default_build();
        let found = builds.iter().find(|build| Some(build.id.as_str()) == default);
        found.or(builds.first()).cloned()
    }

    /// Lets every tenant use a template, or only its own.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` where tenants can't share files.
    pub async fn set_public(
        &self,
        tenant: &TenantId,
        template: &str,
        public: bool,
    ) -> Result<Arc<Template>> {
        if public && self.shop.config.builder_tenant.is_none() {
            let message = "public: templates can't be shared between tenants on this server";
            return Err(Error::unsupported(message));
        }
        let id = self.own(tenant, template)?.id.clone();
        self.change_template(&id, |template| template.public = public).await
    }

    /// Changes a template's record.
    async fn change_template(
        &self,
        id: &str,
        change: impl FnOnce(&mut Template),
    ) -> Result<Arc<Template>> {
        let pen = self.shop.book.pen().await;
        let found = pen.read().templates.get(id).cloned();
        let mut template = Arc::unwrap_or_clone(found.ok_or_else(|| unknown(id))?);
        change(&mut template);
        template.updated_at = (self.shop.now)();
        pen.write(vec![Change::Template(template.clone())]).await?;
        Ok(Arc::new(template))
    }
}

/// Builds that were in the queue or at work are over: what they did is not known.
async fn end_interrupted(shop: &Shop) -> Result<()> {
    let interrupted: Vec<Arc<Build>> = {
        let pages = shop.book.read();
        pages.builds.values().filter(|build| build.begun && build.is_pending()).cloned().collect()
    };
    let pen = shop.book.pen().await;
    for build in interrupted {
        let now = (shop.now)();
        let message = "the server restarted during the build: start the build again".to_owned();
        let mut build = Arc::unwrap_or_clone(build);
        build.status = Status::Error;
        build.reason = Some(Reason { message, step: None });
        (build.updated_at, build.finished_at) = (now, Some(now));
        pen.write(vec![Change::Build(build)]).await?;
    }
    Ok(())
}

/// A template that isn't there for this caller, in the documented words.
fn unknown(reference: &str) -> Error {
    let shown = crate::reference::shown(reference);
    Error::new(ErrorKind::NotFound, format!("template '{shown}' not found"))
}

fn unknown_build(id: &str) -> Error {
    let shown = crate::reference::shown(id);
    Error::new(ErrorKind::NotFound, format!("build '{shown}' not found"))
}
