//! Named volumes and what is in them.

use async_trait::async_trait;
use atoll_core::{Error, Result, TenantId, Timestamp};
use tokio::io::AsyncRead;

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Lasting id.
    pub id: String,
    /// Name, unique for its tenant; mounts use it.
    pub name: String,
    /// Unguessable word that opens this volume's content to whoever holds it.
    pub token: String,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Anything else.
    Other,
}

/// One file, folder or link in a volume.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "named as in stat(2)")]
pub struct VolumeEntry {
    pub name: String,
    /// Absolute within the volume.
    pub path: String,
    pub kind: EntryKind,
    pub size: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Where a link points.
    pub target: Option<String>,
}

/// Owner and mode to give; `None` leaves them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "named as in stat(2)")]
pub struct Ownership {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mode: Option<u32>,
}

/// A file's bytes on their way, and how many there will be.
pub struct VolumeFile {
    /// Its size.
    pub size: u64,
    /// Its bytes.
    pub bytes: Box<dyn AsyncRead + Send + Unpin>,
}

/// Keeps volumes. Paths are absolute within a volume and never lead out of it, whatever links a
/// sandbox has left inside.
#[async_trait]
pub trait Volumes: Send + Sync + 'static {
    /// Makes one. `Conflict` when the name is taken.
    async fn create_volume(&self, tenant: &TenantId, name: &str) -> Result<Volume>;
    /// All of a tenant's.
    async fn volumes(&self, tenant: &TenantId) -> Result<Vec<Volume>>;
    /// One by id.
    async fn volume(&self, tenant: &TenantId, id: &str) -> Result<Volume>;
    /// One by name. `NotFound` for a name that no volume has.
    async fn volume_by_name(&self, tenant: &TenantId, name: &str) -> Result<Volume> {
        let found = self.volumes(tenant).await?.into_iter().find(|volume| volume.name == name);
        found.ok_or_else(|| Error::not_found(format!("volume {name:.64}")))
    }
    /// Removes one with all that is in it. `Conflict` while a sandbox mounts it.
    async fn remove_volume(&self, tenant: &TenantId, id: &str) -> Result<()>;
    /// The volume that `token` opens. `NotFound` for a wrong one.
    async fn volume_by_token(&self, id: &str, token: &str) -> Result<Volume>;

    /// What is at `path`.
    async fn entry(&self, volume: &Volume, path: &str) -> Result<VolumeEntry>;
    /// What is below `path`, by name, `depth` levels deep.
    async fn entries(&self, volume: &Volume, path: &str, depth: u32) -> Result<Vec<VolumeEntry>>;
    /// Changes owner and mode.
    async fn change(
        &self,
        volume: &Volume,
        path: &str,
        ownership: Ownership,
    ) -> Result<VolumeEntry>;
    /// Makes a folder; with `force` parents too, and one that is there is fine.
    async fn make_directory(
        &self,
        volume: &Volume,
        path: &str,
        ownership: Ownership,
        force: bool,
    ) -> Result<VolumeEntry>;
    /// Opens a file to read.
    async fn read_file(&self, volume: &Volume, path: &str) -> Result<VolumeFile>;
    /// Writes a whole file, all or nothing; with `force` parents too, and over what is there.
    async fn write_file(
        &self,
        volume: &Volume,
        path: &str,
        ownership: Ownership,
        force: bool,
        bytes: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<VolumeEntry>;
    /// Removes a file, or a folder with all that is in it.
    async fn remove_entry(&self, volume: &Volume, path: &str) -> Result<()>;
}
