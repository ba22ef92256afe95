//! Everything known of templates: in memory to read, in documents to last.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use atoll_control::Documents;
use atoll_core::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, MutexGuard};

use crate::log::{Log, LogEntry};
use crate::record::{Build, Cached, Layer, Origin, Template};

const TEMPLATES: &str = "template";
const BUILDS: &str = "template-build";
const LOGS: &str = "template-log";
const CACHE: &str = "template-cache";
const LAYERS: &str = "template-layer";
const ORIGINS: &str = "template-origin";

/// What is in memory. Templates and builds by id, logs by build, remembered steps by their chain,
/// layers and origins by snapshot.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pub(crate) templates: BTreeMap<String, Arc<Template>>,
    pub(crate) builds: BTreeMap<String, Arc<Build>>,
    pub(crate) logs: BTreeMap<String, Arc<Log>>,
    pub(crate) cache: BTreeMap<String, Arc<Cached>>,
    pub(crate) layers: BTreeMap<String, Arc<Layer>>,
    pub(crate) origins: BTreeMap<String, Arc<Origin>>,
}

/// One thing to write down.
pub(crate) enum Change {
    Template(Template),
    DropTemplate(String),
    Build(Build),
    DropBuild(String),
    Log(String, Arc<Log>),
    Cached(String, Cached),
    DropCached(String),
    Layer(String, Layer),
    DropLayer(String),
    Origin(String, Origin),
    DropOrigin(String),
}

/// Reads see what is durable; changes are made one after the other.
pub(crate) struct Book {
    documents: Arc<dyn Documents>,
    pages: RwLock<Pages>,
    writing: Mutex<()>,
}

/// The right to change the book.
pub(crate) struct Pen<'a> {
    book: &'a Book,
    _turn: MutexGuard<'a, ()>,
}

impl Book {
    /// Reads everything that was written down. What can't be understood any more is left out.
    pub(crate) async fn open(documents: Arc<dyn Documents>) -> Result<Self> {
        let logs: BTreeMap<String, Arc<Vec<LogEntry>>> = read(&*documents, LOGS).await?;
        let log = |(id, entries): (String, Arc<Vec<LogEntry>>)| {
            (id, Arc::new(Log::of(Arc::unwrap_or_clone(entries))))
        };
        let pages = Pages {
            templates: read(&*documents, TEMPLATES).await?,
            builds: read(&*documents, BUILDS).await?,
            logs: logs.into_iter().map(log).collect(),
            cache: read(&*documents, CACHE).await?,
            layers: read(&*documents, LAYERS).await?,
            origins: read(&*documents, ORIGINS).await?,
        };
        Ok(Self { documents, pages: RwLock::new(pages), writing: Mutex::new(()) })
    }

    /// What is known now.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Pages> {
        self.pages.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the right to change something.
    pub(crate) async fn pen(&self) -> Pen<'_> {
        Pen { book: self, _turn: self.writing.lock().await }
    }

    /// Counts a sandbox; written down with the template's next change.
    pub(crate) fn count_spawn(&self, template: &str, now: atoll_core::Timestamp) {
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(template) = pages.templates.get_mut(template) {
            let template = Arc::make_mut(template);
            template.spawn_count += 1;
            template.last_spawned_at = Some(now);
        }
    }

    /// A log that grows while its build works.
    pub(crate) fn open_log(&self, build: &str) -> Arc<Log> {
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        pages.logs.entry(build.to_owned()).or_default().clone()
    }
}

impl Pen<'_> {
    /// What is known now; nobody else changes it meanwhile.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Pages> {
        self.book.read()
    }

    /// Writes changes down, one after the other, and shows them all at once when they are durable:
    /// nobody sees a build that is ready before its tags point to it.
    pub(crate) async fn write(&self, changes: Vec<Change>) -> Result<()> {
        for change in &changes {
            self.book.keep(change).await?;
        }
        let mut pages = self.book.pages.write().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            pages.apply(change);
        }
        Ok(())
    }
}

impl Book {
    async fn keep(&self, change: &Change) -> Result<()> {
        let to = &*self.documents;
        match change {
            Change::Template(template) => put(to, TEMPLATES, &template.id, template).await,
            Change::DropTemplate(id) => to.remove(TEMPLATES, id).await,
            Change::Build(build) => put(to, BUILDS, &build.id, build).await,
            Change::DropBuild(id) => {
                to.remove(LOGS, id).await?;
                to.remove(BUILDS, id).await
            }
            Change::Log(id, log) => put(to, LOGS, id, &log.all()).await,
            Change::Cached(key, cached) => put(to, CACHE, key, cached).await,
            Change::DropCached(key) => to.remove(CACHE, key).await,
            Change::Layer(id, layer) => put(to, LAYERS, id, layer).await,
            Change::DropLayer(id) => to.remove(LAYERS, id).await,
            Change::Origin(id, origin) => put(to, ORIGINS, id, origin).await,
            Change::DropOrigin(id) => to.remove(ORIGINS, id).await,
        }
    }
}

impl Pages {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Template(template) => {
                self.templates.insert(template.id.clone(), Arc::new(template));
            }
            Change::DropTemplate(id) => {
                self.templates.remove(&id);
            }
            Change::Build(build) => {
                self.builds.insert(build.id.clone(), Arc::new(build));
            }
            Change::DropBuild(id) => {
                self.logs.remove(&id);
                self.builds.remove(&id);
            }
            Change::Log(id, log) => {
                self.logs.insert(id, log);
            }
            Change::Cached(key, cached) => {
                self.cache.insert(key, Arc::new(cached));
            }
            Change::DropCached(key) => {
                self.cache.remove(&key);
            }
            Change::Layer(id, layer) => {
                self.layers.insert(id, Arc::new(layer));
            }
            Change::DropLayer(id) => {
                self.layers.remove(&id);
            }
            Change::Origin(id, origin) => {
                self.origins.insert(id, Arc::new(origin));
            }
            Change::DropOrigin(id) => {
                self.origins.remove(&id);
            }
        }
    }
}

async fn put(
    to: &dyn Documents,
    kind: &'static str,
    key: &str,
    value: &impl Serialize,
) -> Result<()> {
    let bytes = serde_json::to_vec(value)
        .map_err(|error| Error::internal(format!("writing {kind} {key}: {error}")))?;
    to.put(kind, key, bytes).await
}

async fn read<T: DeserializeOwned>(
    from: &dyn Documents,
    kind: &'static str,
) -> Result<BTreeMap<String, Arc<T>>> {
    let mut found = BTreeMap::new();
    for (key, bytes) in from.all(kind).await? {
        match serde_json::from_slice(&bytes) {
            Ok(value) => {
                found.insert(key, Arc::new(value));
            }
            Err(error) => tracing::warn!(kind, key, %error, "a document can't be understood"),
        }
    }
    Ok(found)
}
