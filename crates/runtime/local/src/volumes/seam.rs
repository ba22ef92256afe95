//! Volumes as the doors know them.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use atoll_control::{Ownership, Volume, VolumeEntry, VolumeFile, Volumes};
use atoll_core::{Error, Result, TenantId};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::content::{self, Draft};
use crate::runtime::{Local, LocalRuntime};
use crate::trash::Trash;

/// Bytes of an upload held in memory.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of an upload after which the disk is looked at again.
const DISK_CHECK_BYTES: u64 = 64 << 20;

#[async_trait]
impl Volumes for LocalRuntime {
    async fn create_volume(&self, tenant: &TenantId, name: &str) -> Result<Volume> {
        self.check_space()?;
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.blocking(move |local| local.volumes.create(&tenant, &name)).await
    }

    async fn volumes(&self, tenant: &TenantId) -> Result<Vec<Volume>> {
        let tenant = tenant.clone();
        self.blocking(move |local| local.volumes.list(&tenant)).await
    }

    async fn volume(&self, tenant: &TenantId, id: &str) -> Result<Volume> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.blocking(move |local| local.volumes.find(Some(&tenant), &id).map(|found| found.0))
            .await
    }

    async fn volume_by_name(&self, tenant: &TenantId, name: &str) -> Result<Volume> {
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.blocking(move |local| local.volumes.named(&tenant, &name)).await
    }

    async fn remove_volume(&self, tenant: &TenantId, id: &str) -> Result<()> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        let _alone = self.0.volumes.gate.write().await;
        self.blocking(move |local| local.volumes.remove(&tenant, &id)).await
    }

    async fn volume_by_token(&self, id: &str, token: &str) -> Result<Volume> {
        let (id, token) = (id.to_owned(), token.to_owned());
        self.blocking(move |local| {
            let found = local.volumes.find(None, &id).map(|found| found.0);
            found.ok().filter(|volume| is_same(&volume.token, &token)).ok_or_else(|| {
                // The same answer for a wrong id and a wrong token.
                Error::not_found("a volume with this id and token")
            })
        })
        .await
    }

    async fn entry(&self, volume: &Volume, path: &str) -> Result<VolumeEntry> {
        self.content(volume, path, |_, root, path| content::entry(root, path)).await
    }

    async fn entries(&self, volume: &Volume, path: &str, depth: u32) -> Result<Vec<VolumeEntry>> {
        self.content(volume, path, move |_, root, path| content::entries(root, path, depth)).await
    }

    async fn change(
        &self,
        volume: &Volume,
        path: &str,
        ownership: Ownership,
    ) -> Result<VolumeEntry> {
        self.content(volume, path, move |_, root, path| content::change(root, path, ownership))
            .await
    }

    async fn make_directory(
        &self,
        volume: &Volume,
        path: &str,
        ownership: Ownership,
        force: bool,
    ) -> Result<VolumeEntry> {
        self.check_space()?;
        self.content(volume, path, move |_, root, path| {
            content::make_directory(root, path, ownership, force)
        })
        .await
    }

    async fn read_file(&self, volume: &Volume, path: &str) -> Result<VolumeFile> {
        let opened = self.content(volume, path, |_, root, path| content::open_file(root, path));
        let (file, size) = opened.await?;
        let bytes = tokio::fs::File::from_std(file).take(size);
        Ok(VolumeFile { size, bytes: Box::new(bytes) })
    }

    async fn write_file(
        &self,
        volume: &Volume,
        path: &str,
        ownership: Ownership,
        force: bool,
        bytes: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<VolumeEntry> {
        self.check_space()?;
        let begun = self.content(volume, path, move |local, root, path| {
            Draft::begin(&local.layout, root, path, ownership, force)
        });
        let (draft, file) = begun.await?;
        let mut file = tokio::fs::File::from_std(file);
        self.receive(&draft, &mut file, bytes).await?;
        let file = file.into_std().await;
        self.blocking(move |_| draft.finish(&file)).await
    }

    async fn remove_entry(&self, volume: &Volume, path: &str) -> Result<()> {
        self.content(volume, path, |local, root, path| {
            let (parent, name, place) = content::to_remove(root, path)?;
            match Trash::of(&local.layout).throw_from(&parent, &name) {
                Ok(true) => Ok(()),
                Ok(false) => Err(place.missing()),
                Err(error) => Err(Error::internal(error.to_string())),
            }
        })
        .await
    }
}

impl LocalRuntime {
    /// Takes an upload's bytes as they come, as long as the disk has room.
    async fn receive(
        &self,
        draft: &Draft,
        file: &mut tokio::fs::File,
        bytes: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut unchecked = 0;
        loop {
            let failed = |error: io::Error| draft.failed(&error);
            let got = bytes.read(&mut chunk).await.map_err(failed)?;
            if got == 0 {
                return file.flush().await.map_err(failed);
            }
            file.write_all(&chunk[..got]).await.map_err(failed)?;
            unchecked += got as u64;
            if unchecked >= DISK_CHECK_BYTES {
                unchecked = 0;
                self.check_space()?;
            }
        }
    }

    /// Does something in a volume on a thread that may wait.
    async fn content<T: Send + 'static>(
        &self,
        volume: &Volume,
        path: &str,
        work: impl FnOnce(&Local, &std::path::Path, &str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (id, path) = (volume.id.clone(), path.to_owned());
        self.blocking(move |local| {
            let (_, root) = local.volumes.find(None, &id)?;
            work(local, &root, &path)
        })
        .await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Local) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let local = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&local)).await;
        done.unwrap_or_else(|panic| Err(Error::internal(panic.to_string())))
    }
}

/// Whether two secrets are the same; how long that takes tells nothing but their length.
fn is_same(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && differs == 0
}
