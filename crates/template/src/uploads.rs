//! Files that clients upload for builds: one archive per name, kept per tenant.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use atoll_core::{Error, ErrorKind, Result, TenantId, Timestamp};
use bytes::Bytes;
use futures_util::Stream;
use sha2::{Digest, Sha256};

use crate::config::TemplateConfig;
use crate::ids;
use crate::recipe::is_hash;

use draft::{Bounds, Draft};
use lane::Lane;

mod draft;
mod lane;

/// How long a permission to upload holds; clients give an upload one hour.
const GRANT_TIME: Duration = Duration::from_secs(2 * 60 * 60);

/// A permission to upload one archive, for whoever holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whose archive it will be.
    pub tenant: String,
    /// Until when it holds, in microseconds since the epoch.
    pub until_micros: i64,
    /// Proof that we gave it.
    pub signature: String,
}

/// Whether an archive is here, and the permission to send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    /// It is.
    pub present: bool,
    /// To send it, or to replace it.
    pub grant: Grant,
}

/// All uploads.
#[derive(Debug)]
pub(crate) struct Uploads {
    dir: PathBuf,
    bytes_max: u64,
    tenant_bytes_max: u64,
    secret: [u8; 32],
    bounds: Bounds,
    lanes: Mutex<HashMap<String, Arc<Lane>>>,
}

impl Uploads {
    pub(crate) async fn open(config: &TemplateConfig) -> Result<Self> {
        let dir = config.uploads_dir.clone();
        tokio::fs::create_dir_all(&dir).await.map_err(|e| failed("making", &dir, &e))?;
        let uploads = Self {
            dir,
            bytes_max: config.upload_bytes_max,
            tenant_bytes_max: config.uploads_bytes_max,
            secret: ids::random(),
            bounds: Bounds::default(),
            lanes: Mutex::default(),
        };
        uploads.remove_drafts().await;
        Ok(uploads)
    }

    /// Whether the archive is here.
    pub(crate) async fn presence(
        &self,
        tenant: &TenantId,
        hash: &str,
        now: Timestamp,
    ) -> Result<Presence> {
        check_hash(hash)?;
        let present =
            tokio::fs::try_exists(self.path(tenant.as_str(), hash)).await.unwrap_or(false);
        let until_micros = now.saturating_add(GRANT_TIME).as_micros();
        let signature = self.signature(tenant.as_str(), hash, until_micros);
        let grant = Grant { tenant: tenant.to_string(), until_micros, signature };
        Ok(Presence { present, grant })
    }

    /// The archive, marked as used now.
    pub(crate) async fn find(
        &self,
        tenant: &TenantId,
        hash: &str,
        now: Timestamp,
    ) -> Result<Option<PathBuf>> {
        check_hash(hash)?;
        let path = self.path(tenant.as_str(), hash);
        let touched = path.clone();
        let touch = move || std::fs::File::open(touched)?.set_modified(moment(now));
        match tokio::task::spawn_blocking(touch).await {
            Ok(Ok(())) => Ok(Some(path)),
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Ok(Err(error)) => Err(failed("opening", &path, &error)),
            Err(panic) => Err(Error::internal(format!("opening an upload: {panic}"))),
        }
    }

    /// Receives an archive of exactly `length` bytes; it is here whole or not at all.
    pub(crate) async fn receive<E: std::fmt::Display>(
        &self,
        grant: &Grant,
        hash: &str,
        length: u64,
        now: Timestamp,
        body: impl Stream<Item = std::result::Result<Bytes, E>>,
    ) -> Result<()> {
        check_hash(hash)?;
        self.check(grant, hash, now)?;
        if length > self.bytes_max {
            let problem = format!("{length} bytes are too many: at most {} work", self.bytes_max);
            return Err(Error::invalid("Content-Length", problem).with_reason("UPLOAD_TOO_LARGE"));
        }
        let received = self.receive_in_turn(grant, hash, length, now, body);
        let in_time = tokio::time::timeout(self.bounds.time_max, received).await;
        in_time.unwrap_or_else(|_| {
            let minutes = self.bounds.time_max.as_secs() / 60;
            let problem = format!("did not come within {minutes} minutes; send less at once");
            Err(Error::invalid("body", problem).with_reason("UPLOAD_TOO_SLOW"))
        })
    }

    async fn receive_in_turn<E: std::fmt::Display>(
        &self,
        grant: &Grant,
        hash: &str,
        length: u64,
        now: Timestamp,
        body: impl Stream<Item = std::result::Result<Bytes, E>>,
    ) -> Result<()> {
        let lane = self.lane(&grant.tenant);
        let _turn = lane.turn().await?;
        // Given back after the draft has become an archive or has gone.
        let _reserved = lane.reserve(length, self.tenant_bytes_max)?;
        let folder = self.dir.join(&grant.tenant);
        tokio::fs::create_dir_all(&folder).await.map_err(|e| failed("making", &folder, &e))?;
        self.make_room(&folder, lane.reserved()).await?;
        self.bounds.check_disk(&folder, length)?;
        let mut draft = Draft::begin(&folder).await?;
        draft.fill(length, &self.bounds, body).await?;
        draft.keep(&self.path(&grant.tenant, hash), now).await
    }

    /// The uploads of a tenant. There are as many lanes as tenants: only they get permissions.
    fn lane(&self, tenant: &str) -> Arc<Lane> {
        // A lane is inserted in one step, so that a panic elsewhere left the map whole.
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lanes.entry(tenant.to_owned()).or_default())
    }

    fn check(&self, grant: &Grant, hash: &str, now: Timestamp) -> Result<()> {
        let wanted = self.signature(&grant.tenant, hash, grant.until_micros);
        let same = wanted.len() == grant.signature.len()
            && wanted.bytes().zip(grant.signature.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b))
                == 0;
        if !same || TenantId::parse(&grant.tenant).is_err() {
            let message = "this upload was not asked for: ask for its URL first";
            return Err(Error::new(ErrorKind::Forbidden, message));
        }
        if now.as_micros() > grant.until_micros {
            let message = "this upload's URL has expired: ask for a new one";
            return Err(Error::new(ErrorKind::Forbidden, message));
        }
        Ok(())
    }

    /// The secret goes in first and last, so that nothing can be appended to what was signed.
    fn signature(&self, tenant: &str, hash: &str, until_micros: i64) -> String {
        let inner = Sha256::new()
            .chain_update(self.secret)
            .chain_update(format!("upload\n{tenant}\n{hash}\n{until_micros}"))
            .finalize();
        ids::hex(&Sha256::new().chain_update(self.secret).chain_update(inner).finalize())
    }

    fn path(&self, tenant: &str, hash: &str) -> PathBuf {
        self.dir.join(tenant).join(format!("{hash}.tar"))
    }

    /// Removes the archives that were used longest ago until `reserved` bytes fit beside the rest.
    async fn make_room(&self, folder: &Path, reserved: u64) -> Result<()> {
        let (folder, bytes_max) = (folder.to_owned(), self.tenant_bytes_max);
        let evict = move || {
            let mut kept: Vec<(SystemTime, u64, PathBuf)> = archives(&folder, "tar").collect();
            kept.sort();
            let mut bytes: u64 = kept.iter().map(|(_, size, _)| size).sum();
            for (_, size, path) in kept {
                if bytes.saturating_add(reserved) <= bytes_max {
                    return Ok(());
                }
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(failed("making room by removing", &path, &error));
                    }
                    // Gone, by whichever upload needed the room first.
                    _ => bytes = bytes.saturating_sub(size),
                }
            }
            Ok(())
        };
        let made = tokio::task::spawn_blocking(evict).await;
        made.unwrap_or_else(|panic| Err(Error::internal(format!("making room: {panic}"))))
    }

    async fn remove_drafts(&self) {
        let dir = self.dir.clone();
        let remove = move || {
            for tenant in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                for (_, _, draft) in archives(&tenant.path(), "draft") {
                    std::fs::remove_file(draft).ok();
                }
            }
        };
        tokio::task::spawn_blocking(remove).await.ok();
    }
}

/// Files with an ending: when they were used last, how large they are, and where.
fn archives(
    folder: &Path,
    ending: &'static str,
) -> impl Iterator<Item = (SystemTime, u64, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let wanted = entries.filter(move |e| e.path().extension().is_some_and(|found| found == ending));
    wanted.filter_map(|entry| {
        let found = entry.metadata().ok()?;
        Some((found.modified().ok()?, found.len(), entry.path()))
    })
}

/// A time as files carry it.
fn moment(time: Timestamp) -> SystemTime {
    let micros = u64::try_from(time.as_micros()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

fn check_hash(hash: &str) -> Result<()> {
    if is_hash(hash) {
        return Ok(());
    }
    Err(Error::invalid("hash", "must be the 64 lower-case hex digits of a SHA-256"))
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Error {
    let message = format!("{doing} {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::StorageFull => Error::new(ErrorKind::Exhausted, message),
        _ => Error::internal(message),
    }
}

#[cfg(test)]
mod tests;
