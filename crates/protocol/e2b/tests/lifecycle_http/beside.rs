//! What stands beside the lifecycle, in memory: volumes and documents.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use atoll_control::{Documents, EntryKind, Ownership, Volume, VolumeEntry, VolumeFile, Volumes};
use atoll_core::{Error, Result, TenantId, Timestamp};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Volumes whose files are a map.
#[derive(Default)]
pub(crate) struct MapVolumes {
    volumes: Mutex<Vec<(TenantId, Volume)>>,
    files: Mutex<BTreeMap<(String, String), Vec<u8>>>,
}

impl MapVolumes {
    fn find(&self, fits: impl Fn(&TenantId, &Volume) -> bool) -> Result<Volume> {
        let volumes = self.volumes.lock().unwrap();
        let found = volumes.iter().find(|(tenant, volume)| fits(tenant, volume));
        found.map(|(_, volume)| volume.clone()).ok_or_else(|| Error::not_found("this volume"))
    }

    fn show(path: &str, size: usize) -> VolumeEntry {
        let at = Timestamp::from_micros(1_000_000);
        VolumeEntry {
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            path: path.to_owned(),
            kind: EntryKind::File,
            size: size as u64,
            mode: 0o644,
            uid: 0,
            gid: 0,
            atime: at,
            mtime: at,
            ctime: at,
            target: None,
        }
    }
}

#[async_trait]
impl Volumes for MapVolumes {
    async fn create_volume(&self, tenant: &TenantId, name: &str) -> Result<Volume> {
        let mut volumes = self.volumes.lock().unwrap();
        if volumes.iter().any(|(owner, volume)| owner == tenant && volume.name == name) {
            return Err(Error::conflict("this name is taken"));
        }
        let number = volumes.len();
        let (id, token) = (format!("v{number}"), format!("token-of-{number}"));
        let volume = Volume { id, name: name.to_owned(), token };
        volumes.push((tenant.clone(), volume.clone()));
        Ok(volume)
    }

    async fn volumes(&self, tenant: &TenantId) -> Result<Vec<Volume>> {
        let volumes = self.volumes.lock().unwrap();
        Ok(volumes.iter().filter(|(t, _)| t == tenant).map(|(_, v)| v.clone()).collect())
    }

    async fn volume(&self, tenant: &TenantId, id: &str) -> Result<Volume> {
        self.find(|owner, volume| owner == tenant && volume.id == id)
    }

    async fn remove_volume(&self, tenant: &TenantId, id: &str) -> Result<()> {
        self.volume(tenant, id).await?;
        self.volumes.lock().unwrap().retain(|(_, volume)| volume.id != id);
        Ok(())
    }

    async fn volume_by_token(&self, id: &str, token: &str) -> Result<Volume> {
        self.find(|_, volume| volume.id == id && volume.token == token)
    }

    async fn entry(&self, volume: &Volume, path: &str) -> Result<VolumeEntry> {
        let files = self.files.lock().unwrap();
        let found = files.get(&(volume.id.clone(), path.to_owned()));
        found.map(|bytes| Self::show(path, bytes.len())).ok_or_else(|| Error::not_found(path))
    }

    async fn entries(&self, volume: &Volume, path: &str, _: u32) -> Result<Vec<VolumeEntry>> {
        let files = self.files.lock().unwrap();
        let below = files.iter().filter(|((id, at), _)| *id == volume.id && at.starts_with(path));
        Ok(below.map(|((_, at), bytes)| Self::show(at, bytes.len())).collect())
    }

    async fn change(&self, volume: &Volume, path: &str, o: Ownership) -> Result<VolumeEntry> {
        let entry = self.entry(volume, path).await?;
        Ok(VolumeEntry { mode: o.mode.unwrap_or(entry.mode), ..entry })
    }

    async fn make_directory(
        &self,
        _: &Volume,
        path: &str,
        ownership: Ownership,
        force: bool,
    ) -> Result<VolumeEntry> {
        if !force && path == "/there" {
            return Err(Error::conflict("it is there already"));
        }
        let (kind, mode) = (EntryKind::Directory, ownership.mode.unwrap_or(0o755));
        Ok(VolumeEntry { kind, mode, ..Self::show(path, 0) })
    }

    async fn read_file(&self, volume: &Volume, path: &str) -> Result<VolumeFile> {
        let size = self.entry(volume, path).await?.size;
        let bytes = self.files.lock().unwrap()[&(volume.id.clone(), path.to_owned())].clone();
        Ok(VolumeFile { size, bytes: Box::new(std::io::Cursor::new(bytes)) })
    }

    async fn write_file(
        &self,
        volume: &Volume,
        path: &str,
        _: Ownership,
        _: bool,
        bytes: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<VolumeEntry> {
        let mut read = Vec::new();
        bytes.read_to_end(&mut read).await.map_err(|e| Error::unavailable(e.to_string()))?;
        let size = read.len();
        self.files.lock().unwrap().insert((volume.id.clone(), path.to_owned()), read);
        Ok(Self::show(path, size))
    }

    async fn remove_entry(&self, volume: &Volume, path: &str) -> Result<()> {
        self.entry(volume, path).await?;
        self.files.lock().unwrap().remove(&(volume.id.clone(), path.to_owned()));
        Ok(())
    }
}

/// Documents as long as the test runs.
#[derive(Default)]
pub(crate) struct MapDocuments(Mutex<BTreeMap<(&'static str, String), Vec<u8>>>);

#[async_trait]
impl Documents for MapDocuments {
    async fn put(&self, kind: &'static str, key: &str, bytes: Vec<u8>) -> Result<()> {
        self.0.lock().unwrap().insert((kind, key.to_owned()), bytes);
        Ok(())
    }

    async fn remove(&self, kind: &'static str, key: &str) -> Result<()> {
        self.0.lock().unwrap().remove(&(kind, key.to_owned()));
        Ok(())
    }

    async fn all(&self, kind: &'static str) -> Result<Vec<(String, Vec<u8>)>> {
        let kept = self.0.lock().unwrap();
        let of_kind = kept.iter().filter(|((k, _), _)| *k == kind);
        Ok(of_kind.map(|((_, key), bytes)| (key.clone(), bytes.clone())).collect())
    }
}
