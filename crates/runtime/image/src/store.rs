//! The images of this machine and the pulls under way.

mod catalog;
mod flight;
mod pull;
mod record;
mod source;

use crate::{
    Auth, Config, Error, Image, ImageSummary, Progress, host,
    layers::{self, Layers},
    registry::Registries,
    scratch::{ScratchDir, private_directory},
};
use catalog::{Caller, Catalog};
use flight::Flights;
use source::Source;
use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::Arc,
};
use tokio::sync::Semaphore;

/// Images present on this machine; clones share everything.
#[derive(Clone)]
pub struct ImageStore {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    sources: BTreeMap<String, Source>,
    registries: Registries,
    layers: Layers,
    catalog: Catalog,
    flights: Flights,
    pulls: Semaphore,
    /// Keys the fingerprints of credentials, so that they mean nothing outside this process.
    fingerprint_key: [u8; 32],
}

impl std::fmt::Debug for ImageStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageStore").field("root", &self.inner.config.root).finish_non_exhaustive()
    }
}

impl ImageStore {
    /// Opens the store, removes what an earlier process left unfinished and reads the catalog.
    pub fn open(config: Config) -> Result<Self, Error> {
        let root = config.root.clone();
        private_directory(&root.join("images"))?;
        private_directory(&root.join("host"))?;
        let scratch = ScratchDir::open(root.join("tmp"))?;
        let layers = Layers::open(root.join("layers"), scratch)?;
        let mut fingerprint_key = [0; 32];
        getrandom::fill(&mut fingerprint_key).map_err(|e| {
            Error::io("(any)", "reading randomness for", &root, std::io::Error::other(e))
        })?;
        let inner = Inner {
            sources: source::named(&config)?,
            registries: Registries::new(&config)?,
            catalog: Catalog::open(root.join("images"), &layers)?,
            flights: Flights::default(),
            pulls: Semaphore::new(config.limits.concurrent_pulls_max.max(1)),
            layers,
            config,
            fingerprint_key,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Makes an image present and returns it; concurrent callers of one reference share one pull.
    ///
    /// A pull goes on when its callers go away, within the limits' time. With `auth` the registry
    /// is asked about these credentials even when the image is present.
    pub async fn ensure(
        &self,
        reference: &str,
        auth: Option<&Auth>,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Arc<Image>, Error> {
        let source = self.source(reference)?;
        let auth = auth.filter(|_| source.takes_credentials());
        let caller = Caller::new(&self.inner.fingerprint_key, auth);
        if auth.is_none()
            && let Some(image) = self.inner.catalog.public(&source.name())
        {
            return Ok(image);
        }
        let (store, owned_auth) = (self.clone(), auth.cloned());
        let key = (source.name(), caller.clone());
        let run = move |report| pull::run(store, source, owned_auth, caller, report);
        self.inner.flights.join(key, run, progress).await
    }

    /// The image if it is present and needs no credentials; reads memory only.
    pub fn cached(&self, reference: &str) -> Option<Arc<Image>> {
        let source = self.source(reference).ok()?;
        self.inner.catalog.public(&source.name())
    }

    /// Images present, by reference.
    pub fn list(&self) -> Vec<ImageSummary> {
        self.inner.catalog.list()
    }

    /// Forgets an image, so that the next use fetches it anew; false when it is not present. Its
    /// layers stay until [`collect_garbage`](Self::collect_garbage).
    pub fn remove(&self, reference: &str) -> Result<bool, Error> {
        let source = self.source(reference)?;
        self.inner.catalog.remove(&source.name())
    }

    /// Removes layers that no image, no pull and no path of `in_use` needs; gives the bytes freed.
    /// Blocks on files.
    pub fn collect_garbage(&self, in_use: &HashSet<PathBuf>) -> Result<u64, Error> {
        let used = || {
            let mut used = self.inner.catalog.lowers();
            used.extend(in_use.iter().cloned());
            used
        };
        let mut freed = self.inner.layers.collect(used)?;
        let used = used();
        let current = host::current_directories(&self.inner.config.root);
        for path in layers::entries(&self.inner.config.root.join("host"))? {
            if !used.contains(&path) && !current.contains(&path) {
                freed += layers::disk_usage(self.inner.layers.retire(&path)?.path());
            }
        }
        Ok(freed)
    }

    fn source(&self, reference: &str) -> Result<Source, Error> {
        match self.inner.sources.get(reference) {
            Some(source) => Ok(source.clone()),
            None => Source::parse(reference),
        }
    }
}
