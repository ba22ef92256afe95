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

/// Volumes of one tenant beyond which no more are made by name.
const VOLUMES_MAX: usize = 1000;
/// Volumes of one listing; sandboxes may have made more than can be made by name.
const LISTED_MAX: usize = 10_000;
const NAME_BYTES_MAX: usize = 63;
/// Every user of a sandbox may write: commands run as an ordinary one by default, and nobody but
/// the tenant's own sandboxes sees the volume.
const ROOT_MODE: u32 = 0o777;
const TOKEN_BYTES: usize = 32;

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
#[derive(Serialize, Deserialize)]
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
        let mut index = self.index();
        let place = Place { tenant: tenant.as_str().to_owned(), name: name.to_owned() };
        let dir = self.layout.volume(&place.tenant, name);
        let parent = dir.parent().unwrap_or(&dir);
        if names_in(parent).len() >= VOLUMES_MAX {
            let message = format!("volumes: the limit of {VOLUMES_MAX} is reached; remove some");
            return Err(Error::new(ErrorKind::Exhausted, message).with_reason("TOO_MANY_VOLUMES"));
        }
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
        self.enrol(&mut index, place)
    }

    /// A tenant's volumes, by name.
    pub(crate) fn list(&self, tenant: &TenantId) -> Result<Vec<Volume>> {
        let mut index = self.index();
        let folder = self.layout.volumes().join(tenant.as_str());
        let mut names = names_in(&folder);
        names.sort();
        names.truncate(LISTED_MAX);
        names
            .into_iter()
            .map(|name| {
                let place = Place { tenant: tenant.as_str().to_owned(), name };
                match self.recorded(&place) {
                    Some(volume) => Ok(volume),
                    None => self.enrol(&mut index, place),
                }
            })
            .collect()
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
        let mut index = self.index();
        if let Some(sandbox) = self.user_of(&dir) {
            let name = volume.name;
            let message =
                format!("volume {name} is mounted by sandbox {sandbox}: remove that first");
            return Err(Error::conflict(message).with_reason("VOLUME_IN_USE"));
        }
        throw(&self.layout, tenant.as_str(), &volume.name).map_err(failed("removing a volume"))?;
        index.remove(id);
        Ok(())
    }

    /// A sandbox whose plan has a mount from `dir`.
    fn user_of(&self, dir: &Path) -> Option<String> {
        names_in(&self.layout.sandboxes()).into_iter().find(|sandbox| {
            let plan = read_json::<Plan>(&self.layout.sandbox(sandbox).join(plan::FILE));
            plan.is_ok_and(|plan| plan.mounts().any(|bind| bind.root == dir))
        })
    }

    /// Gives a volume its id and token.
    fn enrol(&self, index: &mut HashMap<String, Place>, place: Place) -> Result<Volume> {
        let record = random::uuid()
            .and_then(|id| Ok(Record { id, token: random::hex(TOKEN_BYTES)? }))
            .and_then(|record| write_record(&record_file(&self.layout, &place), record));
        let Record { id, token } = record.map_err(failed("recording a volume"))?;
        index.insert(id.clone(), place.clone());
        Ok(Volume { id, name: place.name, token })
    }

    fn recorded(&self, place: &Place) -> Option<Volume> {
        let Record { id, token } = read_json(&record_file(&self.layout, place)).ok()?;
        Some(Volume { id, name: place.name.clone(), token })
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

/// Writes a record in one step; nobody but root may read it.
fn write_record(file: &Path, record: Record) -> io::Result<Record> {
    let parent = file.parent().unwrap_or(file);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    // No volume's name begins with a dot.
    let draft = parent.join(".draft");
    let mut opened = std::fs::File::options();
    opened.write(true).create(true).truncate(true).mode(0o600);
    let mut written = opened.open(&draft)?;
    written.write_all(&serde_json::to_vec(&record)?)?;
    written.sync_all()?;
    std::fs::rename(&draft, file)?;
    Ok(record)
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
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_used_again_is_another_volume() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path());
        std::fs::create_dir_all(layout.trash()).unwrap();
        let (tenant, other) = (TenantId::parse("a").unwrap(), TenantId::parse("b").unwrap());
        let registry = Registry::open(&layout).unwrap();
        // A sandbox that mounts a name makes the folder and nothing else.
        std::fs::create_dir_all(layout.volume("a", "data.v1")).unwrap();
        let first = registry.list(&tenant).unwrap().remove(0);
        assert_eq!(first.name, "data.v1");
        let record = layout.volume_records().join("a/data.v1");
        assert_eq!(std::fs::metadata(record).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(registry.find(Some(&other), &first.id).is_err());
        // One that takes its volume with it leaves no record.
        throw(&layout, "a", "data.v1").unwrap();
        assert!(registry.find(Some(&tenant), &first.id).is_err());
        std::fs::create_dir_all(layout.volume("a", "data.v1")).unwrap();
        let second = registry.list(&tenant).unwrap().remove(0);
        assert!(second.id != first.id && second.token != first.token);
        // Another server finds the same.
        let registry = Registry::open(&layout).unwrap();
        assert_eq!(registry.find(None, &second.id).unwrap().0, second);
        assert!(registry.find(None, &first.id).is_err());
    }
}
