//! Which images are present, and who may use them.

use super::record::{self, Record};
use crate::{
    Auth, Error, Image, ImageSummary,
    digest::Digest,
    layers::{self, Layers},
};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

/// Credentials remembered per image; forgetting costs a question to the registry.
const CALLERS_MAX: usize = 1024;

/// Who asks for an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Caller {
    Anonymous,
    /// Keyed hash of a username and password.
    Known(Digest),
}

impl Caller {
    pub(super) fn new(key: &[u8; 32], auth: Option<&Auth>) -> Self {
        let Some(auth) = auth else { return Self::Anonymous };
        let mut hasher = Sha256::new_with_prefix(key);
        hasher.update((auth.username.len() as u64).to_le_bytes());
        hasher.update(&auth.username);
        hasher.update(&auth.password);
        Self::Known(Digest::finish(hasher))
    }
}

/// An image in memory.
struct Present {
    image: Arc<Image>,
    layers: usize,
    compressed_bytes: u64,
    public: bool,
    callers: HashSet<Caller>,
    /// What to write when the image becomes public; none for images that are not kept on disk.
    record: Option<Record>,
}

/// All images, in memory and on disk.
pub(super) struct Catalog {
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    images: HashMap<String, Present>,
    /// Images removed or replaced while somebody may still be about to mount them.
    retired: Vec<Weak<Image>>,
}

impl Catalog {
    /// Reads the records whose layers are all there; removes the others.
    pub(super) fn open(directory: PathBuf, layers: &Layers) -> Result<Self, Error> {
        let mut images = HashMap::new();
        for path in layers::entries(&directory)? {
            match record::load(&path, layers) {
                Some((record, image)) => {
                    images.insert(record.reference.clone(), Present::new(image, record));
                }
                None => std::fs::remove_file(&path)
                    .map_err(|e| Error::io("(any)", "removing damaged record", &path, e))?,
            }
        }
        let state = State { images, retired: Vec::new() };
        Ok(Self { directory, state: Mutex::new(state) })
    }

    /// An image anyone may use.
    pub(super) fn public(&self, name: &str) -> Option<Arc<Image>> {
        self.state().images.get(name).filter(|p| p.public).map(|p| Arc::clone(&p.image))
    }

    /// An image regardless of who may use it, and whether this caller has proved he may.
    pub(super) fn find(&self, name: &str, caller: &Caller) -> Option<(Arc<Image>, bool)> {
        let state = self.state();
        let present = state.images.get(name)?;
        Some((Arc::clone(&present.image), present.callers.contains(caller)))
    }

    /// Keeps a pulled image for the caller who pulled it, or for everyone.
    pub(super) fn insert(
        &self,
        image: Image,
        record: Record,
        caller: &Caller,
        keep_on_disk: bool,
    ) -> Result<Arc<Image>, Error> {
        let name = record.reference.clone();
        let mut present = Present::new(image, record);
        if keep_on_disk {
            present.record.as_ref().expect("just given").write(&self.directory)?;
        } else {
            present.record = None;
        }
        present.callers.insert(caller.clone());
        let image = Arc::clone(&present.image);
        let mut state = self.state();
        if let Some(old) = state.images.insert(name, present) {
            state.retired.push(Arc::downgrade(&old.image));
        }
        Ok(image)
    }

    /// Remembers that the registry gave this caller the image.
    pub(super) fn allow(&self, name: &str, caller: &Caller) -> Result<(), Error> {
        let mut state = self.state();
        let Some(present) = state.images.get_mut(name) else { return Ok(()) };
        if present.callers.len() >= CALLERS_MAX {
            present.callers.clear();
        }
        present.callers.insert(caller.clone());
        if *caller != Caller::Anonymous || present.public {
            return Ok(());
        }
        present.public = true;
        if let Some(record) = &mut present.record {
            record.public = true;
            let record = record.clone();
            drop(state);
            record.write(&self.directory)?;
        }
        Ok(())
    }

    pub(super) fn remove(&self, name: &str) -> Result<bool, Error> {
        let mut state = self.state();
        let Some(old) = state.images.remove(name) else { return Ok(false) };
        state.retired.push(Arc::downgrade(&old.image));
        let path = record::path(&self.directory, name);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(name, "removing record", path, e))
            }
            _ => Ok(true),
        }
    }

    pub(super) fn list(&self) -> Vec<ImageSummary> {
        let summary = |present: &Present| ImageSummary {
            reference: present.image.reference.clone(),
            digest: present.image.digest.clone(),
            layers: present.layers,
            compressed_bytes: present.compressed_bytes,
            public: present.public,
        };
        let mut list: Vec<_> = self.state().images.values().map(summary).collect();
        list.sort_by(|a, b| a.reference.cmp(&b.reference));
        list
    }

    /// Directories that images rely on, also those removed while somebody holds them.
    pub(super) fn lowers(&self) -> HashSet<PathBuf> {
        let mut state = self.state();
        state.retired.retain(|image| image.strong_count() > 0);
        let retired = state.retired.iter().filter_map(Weak::upgrade);
        let present = state.images.values().map(|present| Arc::clone(&present.image));
        let roots = |image: Arc<Image>| image.roots.clone();
        retired.chain(present).flat_map(roots).flat_map(|root| root.lowers).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Present {
    fn new(image: Image, record: Record) -> Self {
        Self {
            image: Arc::new(image),
            layers: record.diff_ids.len(),
            compressed_bytes: record.compressed_bytes,
            public: record.public,
            callers: HashSet::new(),
            record: Some(record),
        }
    }
}
