//! The simulated runtime keeps no files, so it keeps no volumes, and says so.

use async_trait::async_trait;
use atoll_control::{Ownership, Volume, VolumeEntry, VolumeFile, Volumes};
use atoll_core::{Error, Result, TenantId};
use tokio::io::AsyncRead;

use crate::SimRuntime;

fn none<T>() -> Result<T> {
    Err(Error::unsupported("the simulated runtime keeps no files, and so no volumes"))
}

#[async_trait]
impl Volumes for SimRuntime {
    async fn create_volume(&self, _: &TenantId, _: &str) -> Result<Volume> {
        none()
    }

    async fn volumes(&self, _: &TenantId) -> Result<Vec<Volume>> {
        Ok(Vec::new())
    }

    async fn volume(&self, _: &TenantId, _: &str) -> Result<Volume> {
        none()
    }

    async fn remove_volume(&self, _: &TenantId, _: &str) -> Result<()> {
        none()
    }

    async fn volume_by_token(&self, _: &str, _: &str) -> Result<Volume> {
        none()
    }

    async fn entry(&self, _: &Volume, _: &str) -> Result<VolumeEntry> {
        none()
    }

    async fn entries(&self, _: &Volume, _: &str, _: u32) -> Result<Vec<VolumeEntry>> {
        none()
    }

    async fn change(&self, _: &Volume, _: &str, _: Ownership) -> Result<VolumeEntry> {
        none()
    }

    async fn make_directory(
        &self,
        _: &Volume,
        _: &str,
        _: Ownership,
        _: bool,
    ) -> Result<VolumeEntry> {
        none()
    }

    async fn read_file(&self, _: &Volume, _: &str) -> Result<VolumeFile> {
        none()
    }

    async fn write_file(
        &self,
        _: &Volume,
        _: &str,
        _: Ownership,
        _: bool,
        _: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<VolumeEntry> {
        none()
    }

    async fn remove_entry(&self, _: &Volume, _: &str) -> Result<()> {
        none()
    }
}
