//! One pull, from a source to an image in the catalog.

use super::{ImageStore, Inner, catalog::Caller, flight::Report, record::Record, source::Source};
use crate::{
    Addition, AdditionState, Auth, Error, ErrorKind, Image, Reference, Stage,
    digest::{Budget, Digest},
    host,
    layers::Fetched,
    local::LocalSource,
    registry::Session,
    unpack::Budgets,
};
use futures_util::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use std::{path::PathBuf, sync::Arc};

/// Layers of one image fetched at once.
const CONCURRENT_LAYERS: usize = 3;

pub(super) async fn run(
    store: ImageStore,
    source: Source,
    auth: Option<Auth>,
    caller: Caller,
    report: Report,
) -> Result<Arc<Image>, Error> {
    let inner = &*store.inner;
    let limit = inner.config.limits.pull_timeout;
    let image = match source {
        Source::Host => make_host(inner).await,
        Source::Addition { name, mut state } => {
            report.update(|progress| progress.stage = Stage::Building);
            let waited = tokio::time::timeout(limit, added(&name, &mut state)).await;
            match waited {
                Ok(added) => add_to_host(inner, &name, added?).await,
                Err(_) => Err(not_added(&name, "it is still being built; try again later")),
            }
        }
        Source::Local { alias, source } => read_local(inner, &alias, source, &report).await,
        Source::Registry(reference) => {
            let pull = from_registry(inner, &reference, auth.as_ref(), &caller, &report);
            tokio::time::timeout(limit, pull).await.unwrap_or_else(|_| {
                Err(Error::Unreachable {
                    image: reference.to_string(),
                    host: reference.registry().to_owned(),
                    reason: format!("the pull took longer than {} seconds", limit.as_secs()),
                })
            })
        }
    }?;
    report.update(|progress| progress.stage = Stage::Ready);
    Ok(image)
}

async fn make_host(inner: &Inner) -> Result<Arc<Image>, Error> {
    let (root, scratch) = (inner.config.root.clone(), inner.layers.scratch().clone());
    let image = blocking("host", move || host::make(&root, &scratch)).await?;
    keep_in_memory(inner, image)
}

/// What an addition consists of, once it is complete.
struct Added {
    tree: PathBuf,
    env: Vec<(String, String)>,
}

async fn added(name: &str, state: &mut AdditionState) -> Result<Added, Error> {
    let settled = state.wait_for(|state| !matches!(state, Addition::Building(_))).await;
    match settled.as_deref() {
        Ok(Addition::Ready { tree, env }) => Ok(Added { tree: tree.clone(), env: env.clone() }),
        Ok(Addition::Failed(reason)) => Err(not_added(name, reason)),
        Ok(Addition::Building(_)) | Err(_) => Err(not_added(name, "its building was given up")),
    }
}

fn not_added(image: &str, reason: &str) -> Error {
    Error::NotBuilt { image: image.to_owned(), reason: reason.to_owned() }
}

async fn add_to_host(inner: &Inner, name: &str, added: Added) -> Result<Arc<Image>, Error> {
    let mut image = Image::clone(&*make_host(inner).await?);
    name.clone_into(&mut image.reference);
    image.digest = format!("{}+{}", image.digest, added.tree.display());
    let root = image.roots.first_mut().expect("the host image has a root");
    root.lowers.insert(0, added.tree);
    for (key, value) in added.env {
        image.config.env.retain(|(known, _)| *known != key);
        image.config.env.push((key, value));
    }
    keep_in_memory(inner, image)
}

/// Such images are made anew by every server, so that they follow the host.
fn keep_in_memory(inner: &Inner, image: Image) -> Result<Arc<Image>, Error> {
    let record = Record {
        reference: image.reference.clone(),
        digest: image.digest.clone(),
        diff_ids: Vec::new(),
        compressed_bytes: 0,
        config: image.config.clone(),
        public: true,
    };
    inner.catalog.insert(image, record, &Caller::Anonymous, false)
}

async fn read_local(
    inner: &Inner,
    alias: &str,
    source: LocalSource,
    report: &Report,
) -> Result<Arc<Image>, Error> {
    let name = alias.to_owned();
    let contents = blocking(alias, move || source.resolve(&name)).await?;
    let diff_ids: Vec<Digest> = contents.layers.iter().map(|(id, _)| id.clone()).collect();
    let bytes: u64 = contents.layers.iter().map(|(_, section)| section.size).sum();
    check_size(inner, alias, diff_ids.len(), bytes)?;
    start(report, diff_ids.len(), 0);
    let _pins = inner.layers.pin(diff_ids.clone());
    let budgets = budgets(inner);
    let work = contents.layers.iter().map(|(diff_id, section)| {
        let fetched = Fetched { section: section.clone(), _blob: None };
        provide(inner, alias, diff_id, &budgets, report, async { Ok(fetched) }.boxed())
    });
    all(work.collect()).await?;
    let record = Record {
        reference: alias.to_owned(),
        digest: contents.digest,
        diff_ids: diff_ids.iter().map(Digest::to_string).collect(),
        compressed_bytes: bytes,
        config: contents.config,
        public: true,
    };
    insert(inner, record, &Caller::Anonymous, false)
}

async fn from_registry(
    inner: &Inner,
    reference: &Reference,
    auth: Option<&Auth>,
    caller: &Caller,
    report: &Report,
) -> Result<Arc<Image>, Error> {
    let name = reference.to_string();
    let sessions = inner.registries.sessions(reference, auth)?;
    let (registry, mirrors) = sessions.split_last().expect("the registry itself is always there");
    if let Some(image) = inner.catalog.public(&name).filter(|_| auth.is_none()) {
        return Ok(image);
    }
    if let Some((image, proved)) = inner.catalog.find(&name, caller) {
        match registry.authorise().await {
            Ok(()) => inner.catalog.allow(&name, caller)?,
            // Who proved his right before has had the image, so an outage keeps nothing from him.
            Err(error) if proved && error.kind() == ErrorKind::Unreachable => {}
            Err(error) => return Err(error),
        }
        return Ok(image);
    }
    let _permit = inner.pulls.acquire().await;
    for mirror in mirrors {
        match pull(inner, mirror, caller, report).await {
            Ok(image) => return Ok(image),
            Err(error) => tracing::warn!(%error, "a mirror did not help"),
        }
    }
    pull(inner, registry, caller, report).await
}

async fn pull(
    inner: &Inner,
    session: &Session,
    caller: &Caller,
    report: &Report,
) -> Result<Arc<Image>, Error> {
    let image = session.image();
    let contents = session.resolve().await?;
    let bytes = contents.layers.iter().try_fold(0_u64, |sum, layer| sum.checked_add(layer.size));
    let bytes = bytes.unwrap_or(u64::MAX);
    check_size(inner, image, contents.layers.len(), bytes)?;
    start(report, contents.layers.len(), bytes);
    let diff_ids: Vec<Digest> = contents.layers.iter().map(|layer| layer.diff_id.clone()).collect();
    let _pins = inner.layers.pin(diff_ids.clone());
    let budgets = budgets(inner);
    let received = |bytes: i64| {
        report.update(|progress| {
            progress.bytes_done = progress.bytes_done.saturating_add_signed(bytes);
        });
    };
    let work = contents.layers.iter().map(|layer| {
        let fetch = session.download(layer, inner.layers.scratch(), &received).boxed();
        provide(inner, image, &layer.diff_id, &budgets, report, fetch)
    });
    all(work.collect()).await?;
    let record = Record {
        reference: image.to_owned(),
        digest: contents.digest.to_string(),
        diff_ids: diff_ids.iter().map(Digest::to_string).collect(),
        compressed_bytes: bytes,
        config: contents.config,
        public: *caller == Caller::Anonymous,
    };
    insert(inner, record, caller, true)
}

/// One layer's work: fetched if need be, unpacked, counted.
fn provide<'a>(
    inner: &'a Inner,
    image: &'a str,
    diff_id: &'a Digest,
    budgets: &'a Budgets,
    report: &'a Report,
    fetch: BoxFuture<'a, Result<Fetched, Error>>,
) -> BoxFuture<'a, Result<(), Error>> {
    async move {
        inner.layers.provide(image, diff_id, budgets, fetch).await?;
        report.update(|progress| progress.layers_done += 1);
        Ok(())
    }
    .boxed()
}

/// Runs the layers' work, a few at a time; the first failure ends it.
async fn all(work: Vec<BoxFuture<'_, Result<(), Error>>>) -> Result<(), Error> {
    stream::iter(work).buffer_unordered(CONCURRENT_LAYERS).try_collect().await
}

fn insert(
    inner: &Inner,
    record: Record,
    caller: &Caller,
    keep_on_disk: bool,
) -> Result<Arc<Image>, Error> {
    let image = record.image(&inner.layers).expect("the digests were parsed before");
    inner.catalog.insert(image, record, caller, keep_on_disk)
}

fn start(report: &Report, layers_total: usize, bytes_total: u64) {
    report.update(|progress| {
        progress.stage = Stage::Fetching;
        (progress.layers_done, progress.layers_total) = (0, layers_total);
        (progress.bytes_done, progress.bytes_total) = (0, bytes_total);
    });
}

fn budgets(inner: &Inner) -> Budgets {
    let limits = &inner.config.limits;
    Budgets {
        bytes: Budget::new(limits.unpacked_bytes_max),
        entries: Budget::new(limits.entries_max),
    }
}

fn check_size(inner: &Inner, image: &str, layers: usize, bytes: u64) -> Result<(), Error> {
    let limits = &inner.config.limits;
    let too_large = |what, limit| Error::TooLarge { image: image.to_owned(), what, limit };
    if layers == 0 {
        return Err(Error::malformed(image, "it has no layers"));
    }
    if layers > limits.layers_max {
        return Err(too_large("the number of layers", limits.layers_max as u64));
    }
    if bytes > limits.compressed_bytes_max {
        return Err(too_large("its size in bytes", limits.compressed_bytes_max));
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(
    image: &str,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Error::Interrupted { image: image.to_owned() }))
}
