//! Unpacked layers on disk, named by the digest of their tar stream.

use crate::{
    Error,
    digest::Digest,
    scratch::{Scratch, ScratchDir, private_directory},
    unpack::{self, Budgets, Section},
};
use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Semaphore;

/// Layers unpacked at once over all pulls; unpacking is bound by processor and disk.
const CONCURRENT_UNPACKS: usize = 2;

/// A layer on its way to being unpacked; the blob file goes away with the guard.
pub(crate) struct Fetched {
    pub(crate) section: Section,
    pub(crate) _blob: Option<Scratch>,
}

/// The directory of layers.
#[derive(Clone)]
pub(crate) struct Layers {
    inner: Arc<Inner>,
}

struct Inner {
    directory: PathBuf,
    scratch: ScratchDir,
    unpacks: Semaphore,
    /// Layers that pulls under way rely on, with the lock that lets one of them do the work.
    wanted: Mutex<HashMap<Digest, Wanted>>,
}

#[derive(Default)]
struct Wanted {
    pulls: usize,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Keeps layers from being collected while a pull relies on them.
pub(crate) struct Pins {
    layers: Layers,
    digests: Vec<Digest>,
}

impl Layers {
    pub(crate) fn open(directory: PathBuf, scratch: ScratchDir) -> Result<Self, Error> {
        private_directory(&directory)?;
        let unpacks = Semaphore::new(CONCURRENT_UNPACKS);
        Ok(Self {
            inner: Arc::new(Inner { directory, scratch, unpacks, wanted: Mutex::default() }),
        })
    }

    pub(crate) fn path(&self, diff_id: &Digest) -> PathBuf {
        self.inner.directory.join(diff_id.hex())
    }

    pub(crate) fn scratch(&self) -> &ScratchDir {
        &self.inner.scratch
    }

    /// Reserves layers before it is looked whether they exist.
    pub(crate) fn pin(&self, digests: Vec<Digest>) -> Pins {
        let mut wanted = self.wanted();
        for digest in &digests {
            wanted.entry(digest.clone()).or_default().pulls += 1;
        }
        drop(wanted);
        Pins { layers: self.clone(), digests }
    }

    /// Makes a pinned layer present; of several callers one fetches and the others wait.
    pub(crate) async fn provide<F>(
        &self,
        image: &str,
        diff_id: &Digest,
        budgets: &Budgets,
        fetch: F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<Fetched, Error>>,
    {
        let turn = self.wanted().entry(diff_id.clone()).or_default().turn.clone();
        let _turn = turn.lock().await;
        let target = self.path(diff_id);
        if target.is_dir() {
            return Ok(());
        }
        let fetched = fetch.await?;
        let permit = self.inner.unpacks.acquire().await;
        let (image_name, diff_id, budgets) = (image.to_owned(), diff_id.clone(), budgets.clone());
        let scratch = self.inner.scratch.reserve("layer");
        let work = move || {
            unpack::unpack(&image_name, &fetched.section, &diff_id, scratch.path(), &budgets)?;
            scratch.finish(&image_name, &target)
        };
        let done = tokio::task::spawn_blocking(work).await;
        drop(permit);
        done.unwrap_or_else(|_| Err(Error::Interrupted { image: image.to_owned() }))
    }

    /// Removes layers that neither `used` names nor any pull needs; gives the bytes freed.
    pub(crate) fn collect(&self, used: impl FnOnce() -> HashSet<PathBuf>) -> Result<u64, Error> {
        let mut doomed = Vec::new();
        {
            // While the lock is held no pull can begin to rely on a layer, nor end: a layer is
            // either pinned here or used by an image that is in the catalog by now.
            let wanted = self.wanted();
            let used = used();
            let busy: HashSet<PathBuf> = wanted.keys().map(|digest| self.path(digest)).collect();
            for path in entries(&self.inner.directory)? {
                if !used.contains(&path) && !busy.contains(&path) {
                    doomed.push(self.retire(&path)?);
                }
            }
        }
        Ok(doomed.iter().map(|scratch| disk_usage(scratch.path())).sum())
    }

    /// Moves a directory out of use in one step, to be removed when the guard goes.
    pub(crate) fn retire(&self, path: &Path) -> Result<Scratch, Error> {
        let scratch = self.inner.scratch.reserve("garbage");
        std::fs::rename(path, scratch.path())
            .map_err(|e| Error::io("(any)", "moving out of use", path, e))?;
        Ok(scratch)
    }

    fn wanted(&self) -> MutexGuard<'_, HashMap<Digest, Wanted>> {
        self.inner.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut wanted = self.layers.wanted();
        for digest in &self.digests {
            if let Some(entry) = wanted.get_mut(digest) {
                entry.pulls -= 1;
                if entry.pulls == 0 {
                    wanted.remove(digest);
                }
            }
        }
    }
}

/// Paths directly in a directory.
pub(crate) fn entries(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |e| Error::io("(any)", "listing", directory, e);
    let found = std::fs::read_dir(directory).map_err(failed)?;
    found.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
}

/// Bytes a tree occupies; what cannot be read counts as nothing.
pub(crate) fn disk_usage(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(found) = std::fs::symlink_metadata(path) else { return 0 };
    let own = found.blocks() * 512;
    if !found.is_dir() {
        // A file with several names counts in parts, so that it counts once.
        return own / found.nlink().max(1);
    }
    own + entries(path).unwrap_or_default().iter().map(|child| disk_usage(child)).sum::<u64>()
}
