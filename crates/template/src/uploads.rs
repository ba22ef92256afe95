//! Files that clients upload for builds: one archive per name, kept per tenant.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_core::{Error, ErrorKind, Result, TenantId, Timestamp};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use crate::config::TemplateConfig;
use crate::ids;
use crate::recipe::is_hash;

/// How long a permission to upload holds; clients give an upload one hour.
const GRANT_TIME: Duration = Duration::from_secs(2 * 60 * 60);
/// How long an upload may stand still.
const STALL_TIME_MAX: Duration = Duration::from_secs(60);

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
        let folder = self.dir.join(&grant.tenant);
        tokio::fs::create_dir_all(&folder).await.map_err(|e| failed("making", &folder, &e))?;
        self.make_room(&folder, length).await;
        let draft = folder.join(format!("{}.draft", ids::hex(&ids::random::<16>())));
        let received = match fill(&draft, length, now, body).await {
            Ok(()) => tokio::fs::rename(&draft, self.path(&grant.tenant, hash))
                .await
                .map_err(|e| failed("keeping", &draft, &e)),
            Err(error) => Err(error),
        };
        if received.is_err() {
            // What isn't there needs no removal; what stays goes at the next start.
            tokio::fs::remove_file(&draft).await.ok();
        }
        received
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

    /// Removes the archives that were used longest ago until `length` more bytes fit.
    async fn make_room(&self, folder: &Path, length: u64) {
        let (folder, bytes_max) = (folder.to_owned(), self.tenant_bytes_max);
        let evict = move || {
            let mut kept: Vec<(SystemTime, u64, PathBuf)> = archives(&folder, "tar").collect();
            kept.sort();
            let mut bytes: u64 = kept.iter().map(|(_, size, _)| size).sum();
            for (_, size, path) in kept {
                if bytes.saturating_add(length) <= bytes_max {
                    break;
                }
                if std::fs::remove_file(path).is_ok() {
                    bytes = bytes.saturating_sub(size);
                }
            }
        };
        // Room that can't be made shows when the disk is full.
        tokio::task::spawn_blocking(evict).await.ok();
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

async fn fill<E: std::fmt::Display>(
    draft: &Path,
    length: u64,
    now: Timestamp,
    body: impl Stream<Item = std::result::Result<Bytes, E>>,
) -> Result<()> {
    let mut file =
        tokio::fs::File::create_new(draft).await.map_err(|e| failed("making", draft, &e))?;
    let mut body = std::pin::pin!(body);
    let mut received: u64 = 0;
    loop {
        let next = tokio::time::timeout(STALL_TIME_MAX, body.next()).await;
        let next = next.map_err(|_| Error::invalid("body", "nothing came for a minute"))?;
        let Some(chunk) = next else { break };
        let chunk = chunk.map_err(|error| Error::invalid("body", format!("broke off: {error}")))?;
        received += chunk.len() as u64;
        if received > length {
            break;
        }
        file.write_all(&chunk).await.map_err(|e| failed("writing", draft, &e))?;
    }
    if received != length {
        let problem = format!("has not the {length} bytes that Content-Length promised");
        return Err(Error::invalid("body", problem));
    }
    file.sync_all().await.map_err(|e| failed("writing", draft, &e))?;
    let file = file.into_std().await;
    file.set_modified(moment(now)).map_err(|e| failed("writing", draft, &e))
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
