//! Which id and token belong to which volume.
//!
//! A volume is its folder; a record beside it adds an id and a token. Sandboxes that mount a name
//! make folders without a record, and get one when somebody lists them, so both ways of making a
//! volume lead to the same volume.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_control::Volume;
use atoll_core::{Error, ErrorKind, Result, TenantId};
use serde::{Deserialize, Serialize};

use crate::config::Layout;
use crate::files::read_json;
use crate::plan::{self, Plan};
use crate::random;
use crate::trash::Trash;

/// Volumes of one tenant beyond which no more are made, by name or by mounting.
const VOLUMES_MAX: usize = 1000;
/// Volumes of one listing; earlier servers let sandboxes make any number.
const LISTED_MAX: usize = 10_000;
const NAME_BYTES_MAX: usize = 63;
/// Every user of a sandbox may write: commands run as an ordinary one by default, and nobody but
/// the tenant's own sandboxes sees the volume.
const ROOT_MODE: u32 = 0o777;
const TOKEN_BYTES: usize = 32;
/// Begins the name of a record that is being written; no volume's name begins with a dot.
const DRAFT: &str = ".draft";

/// The volumes of a data folder.
pub(crate) struct Registry {
    layout: Layout,
    /// Id to tenant and name: a hint, the record on disk decides. Held while volumes come and go.
    index: Mutex<HashMap<String, Place>>,
    /// Shared by mounts on their way, alone for a removal: no volume goes between being looked at
    /// and being written into a plan.
    pub(crate) gate: tokio::sync::RwLock<()>,
}

/// Whose volume, and its name.
#[derive(Clone)]
struct Place {
    tenant: String,
    name: String,
}

/// What the folder itself doesn't tell.
#[derive(Clone, Serialize, Deserialize)]
struct Record {
    id: String,
    token: String,
}

impl Registry {
    /// Reads all records.
    pub(crate) fn open(layout: &Layout) -> io::Result<Self> {
        let records = layout.volume_records();
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&records)?;
        let mut index = HashMap::new();
        for tenant in names_in(&records) {
            clear_drafts(&records.join(&tenant));
            for name in names_in(&records.join(&tenant)) {
                let place = Place { tenant: tenant.clone(), name };
                if let Ok(record) = read_json::<Record>(&record_file(layout, &place)) {
                    index.insert(record.id, place);
                }
            }
        }
        let gate = tokio::sync::RwLock::new(());
        Ok(Self { layout: layout.clone(), index: Mutex::new(index), gate })
    }

    /// Makes a volume.
    pub(crate) fn create(&self, tenant: &TenantId, name: &str) -> Result<Volume> {
        check_name(name)?;
        let place = Place { tenant: tenant.as_str().to_owned(), name: name.to_owned() };
        let card = Card::write(&self.layout, &place).map_err(failed("recording a volume"))?;
        let mut index = self.index();
        check_room(&self.layout, &place.tenant, 1)?;
        let dir = self.layout.volume(&place.tenant, name);
        let parent = dir.parent().unwrap_or(&dir);
        let made = std::fs::create_dir_all(parent).and_then(|()| std::fs::create_dir(&dir));
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let message = format!("volume {name} exists already; choose another name");
                return Err(Error::conflict(message).with_reason("VOLUME_EXISTS"));
            }
            other => other.map_err(failed("making a volume"))?,
        }
        let mode = std::fs::Permissions::from_mode(ROOT_MODE);
        std::fs::set_permissions(&dir, mode).map_err(failed("making a volume"))?;
        let record = card.lay(&record_file(&self.layout, &place));
        let record = record.map_err(failed("recording a volume"))?;
        index.insert(record.id.clone(), place.clone());
        Ok(record.volume(place.name))
    }

    /// The folder of a volume that is being mounted, made when it isn't there.
    pub(super) fn mounted(&self, tenant: &TenantId, name: &str) -> io::Result<PathBuf> {
        let dir = self.layout.volume(tenant.as_str(), name);
        if !dir.is_dir() {
            let _alone = self.index();
            if !dir.is_dir() {
                check_room(&self.layout, tenant.as_str(), 1)
                    .map_err(|error| io::Error::new(io::ErrorKind::QuotaExceeded, error))?;
                std::fs::create_dir_all(&dir)?;
            }
        }
        Ok(dir)
    }

    /// A tenant's volumes, by name.
    pub(crate) fn list(&self, tenant: &TenantId) -> Result<Vec<Volume>> {
        let folder = self.layout.volumes().join(tenant.as_str());
        let mut names = names_in(&folder);
        names.sort();
        names.truncate(LISTED_MAX);
        // One that goes meanwhile is not listed.
        names.iter().filter_map(|name| self.known(tenant, name).transpose()).collect()
    }

    /// One volume by name.
    pub(crate) fn named(&self, tenant: &TenantId, name: &str) -> Result<Volume> {
        let missing = || Error::not_found(format!("volume {name:.64}"));
        // As listings have them: no path, and nothing hidden.
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Err(missing());
        }
        self.known(tenant, name)?.ok_or_else(missing)
    }

    /// A volume that is there, enrolled if it wasn't yet. Files are read and written without the
    /// lock, so that a long list holds nobody up.
    fn known(&self, tenant: &TenantId, name: &str) -> Result<Option<Volume>> {
        let place = Place { tenant: tenant.as_str().to_owned(), name: name.to_owned() };
        if !self.layout.volume(&place.tenant, name).is_dir() {
            return Ok(None);
        }
        match self.recorded(&place) {
            Some(volume) => Ok(Some(volume)),
            None => self.enrol(place).map_err(failed("recording a volume")),
        }
    }

    /// One volume by id; `None` as tenant for whoever has its token.
    pub(crate) fn find(&self, tenant: Option<&TenantId>, id: &str) -> Result<(Volume, PathBuf)> {
        let missing = || Error::not_found(format!("volume {id:.64}"));
        let place = self.index().get(id).cloned().ok_or_else(missing)?;
        if tenant.is_some_and(|tenant| tenant.as_str() != place.tenant) {
            return Err(missing());
        }
        let dir = self.layout.volume(&place.tenant, &place.name);
        let volume = self.recorded(&place).filter(|volume| volume.id == id && dir.is_dir());
        volume.map(|volume| (volume, dir)).ok_or_else(missing)
    }

    /// Removes a volume that no sandbox mounts. Blocks; the caller holds the gate alone.
    pub(crate) fn remove(&self, tenant: &TenantId, id: &str) -> Result<()> {
        let (volume, dir) = self.find(Some(tenant), id)?;
        if let Some(sandbox) = self.user_of(&dir) {
            let name = volume.name;
            let message =
                format!("volume {name} is mounted by sandbox {sandbox}: remove that first");
            return Err(Error::conflict(message).with_reason("VOLUME_IN_USE"));
        }
        let mut index = self.index();
        throw(&self.layout, tenant.as_str(), &volume.name).map_err(failed("removing a volume"))?;
        index.remove(id);
        Ok(())
    }

    /// Removes a volume that goes with its sandbox; it may be gone already.
    pub(super) fn throw_owned(&self, tenant: &TenantId, name: &str) -> io::Result<()> {
        let mut index = self.index();
        throw(&self.layout, tenant.as_str(), name)?;
        index.retain(|_, place| place.tenant != tenant.as_str() || place.name != name);
        Ok(())
    }

    /// A sandbox whose plan has a mount from `dir`.
    fn user_of(&self, dir: &Path) -> Option<String> {
        names_in(&self.layout.sandboxes()).into_iter().find(|sandbox| {
            let plan = read_json::<Plan>(&self.layout.sandbox(sandbox).join(plan::FILE));
            plan.is_ok_and(|plan| plan.mounts().any(|bind| bind.root == dir))
        })
    }

    /// Gives a volume its id and token; none if it has gone.
    fn enrol(&self, place: Place) -> io::Result<Option<Volume>> {
        let card = Card::write(&self.layout, &place)?;
        let mut index = self.index();
        // Under the lock nothing is removed, so that no record outlives its volume.
        if !self.layout.volume(&place.tenant, &place.name).is_dir() {
            return Ok(None);
        }
        if let Some(volume) = self.recorded(&place) {
            // Somebody else was faster.
            return Ok(Some(volume));
        }
        let record = card.lay(&record_file(&self.layout, &place))?;
        index.insert(record.id.clone(), place.clone());
        Ok(Some(record.volume(place.name)))
    }

    fn recorded(&self, place: &Place) -> Option<Volume> {
        let record: Record = read_json(&record_file(&self.layout, place)).ok()?;
        Some(record.volume(place.name.clone()))
    }

    fn index(&self) -> MutexGuard<'_, HashMap<String, Place>> {
        // A panic elsewhere left the map whole: entries are inserted and removed in one step.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a volume's record and folder away.
pub(super) fn throw(layout: &Layout, tenant: &str, name: &str) -> io::Result<()> {
    let place = Place { tenant: tenant.to_owned(), name: name.to_owned() };
    // The record first: a folder without one is a new volume, a record must never lead to one.
    match std::fs::remove_file(record_file(layout, &place)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Trash::of(layout).throw(&layout.volume(tenant, name))
}

fn check_name(name: &str) -> Result<()> {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        return Ok(());
    }
    let problem = format!("use 1 to {NAME_BYTES_MAX} letters, digits, '-' and '_'");
    Err(Error::invalid("name", problem).with_reason("VOLUME_INVALID_NAME"))
}

fn record_file(layout: &Layout, place: &Place) -> PathBuf {
    layout.volume_records().join(&place.tenant).join(&place.name)
}

/// Refuses `more` volumes than a tenant may have; none is always fine.
pub(super) fn check_room(layout: &Layout, tenant: &str, more: usize) -> Result<()> {
    if more == 0 || names_in(&layout.volumes().join(tenant)).len() + more <= VOLUMES_MAX {
        return Ok(());
    }
    let message = format!("volumes: the limit of {VOLUMES_MAX} is reached; remove some");
    Err(Error::new(ErrorKind::Exhausted, message).with_reason("TOO_MANY_VOLUMES"))
}

impl Record {
    fn volume(self, name: String) -> Volume {
        Volume { id: self.id, name, token: self.token }
    }
}

/// A record that is on disk and counts for nothing yet; nobody but root may read it.
struct Card {
    draft: PathBuf,
    record: Record,
}

impl Card {
    /// Writes it beside its place, which takes as long as the disk takes.
    fn write(layout: &Layout, place: &Place) -> io::Result<Self> {
        let parent = layout.volume_records().join(&place.tenant);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&parent)?;
        let record = Record { id: random::uuid()?, token: random::hex(TOKEN_BYTES)? };
        let draft = parent.join(format!("{DRAFT}{}", record.id));
        let mut opened = std::fs::File::options();
        let mut file = opened.write(true).create_new(true).mode(0o600).open(&draft)?;
        let card = Self { draft, record };
        file.write_all(&serde_json::to_vec(&card.record)?)?;
        file.sync_all()?;
        Ok(card)
    }

    /// Puts it in its place in one step.
    fn lay(self, file: &Path) -> io::Result<Record> {
        std::fs::rename(&self.draft, file)?;
        Ok(self.record.clone())
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // One that was laid isn't there any more; what stays goes at the next start.
        std::fs::remove_file(&self.draft).ok();
    }
}

/// Removes what a server that crashed was writing.
fn clear_drafts(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(DRAFT.as_bytes()) {
            std::fs::remove_file(entry.path()).ok();
        }
    }
}

/// Names of the folders and files in `dir`, without hidden ones.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect()
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |error| match error.kind() {
        io::ErrorKind::StorageFull => {
            Error::new(ErrorKind::Exhausted, format!("{doing}: {error}")).with_reason("DISK_FULL")
        }
        _ => Error::internal(format!("{doing}: {error}")),
    }
}

#[cfg(test)]
mod tests;
