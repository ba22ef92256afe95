//! An archive while its bytes come.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_core::{Error, Result, Timestamp};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::AsyncWriteExt;

use super::{failed, moment};
use crate::ids;

/// How slow an upload may be, and what is left for others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How long no byte may come.
    pub(super) idle_max: Duration,
    /// How long it may take in all, its wait for a turn included.
    pub(super) time_max: Duration,
    /// Bytes after which the disk is looked at again.
    pub(super) disk_check_bytes: u64,
    /// Bytes that a disk has in all and has left, by any path on it.
    pub(super) disk_space: fn(&Path) -> io::Result<(u64, u64)>,
}

/// Kept free for sandboxes that run, as elsewhere in the data folder; of small disks less.
const DISK_RESERVE_BYTES: u64 = 512 << 20;

impl Default for Bounds {
    fn default() -> Self {
        Self {
            idle_max: Duration::from_secs(60),
            // Clients wait one hour, then nobody is there to hear the answer.
            time_max: Duration::from_secs(60 * 60),
            disk_check_bytes: 64 << 20,
            disk_space,
        }
    }
}

impl Bounds {
    /// Refuses `more` bytes that would leave the disk nearly full.
    pub(super) fn check_disk(&self, folder: &Path, more: u64) -> Result<()> {
        let found = (self.disk_space)(folder);
        let (total, free) = found.map_err(|e| failed("looking at the disk of", folder, &e))?;
        let reserve = (total / 50).min(DISK_RESERVE_BYTES);
        if free.saturating_sub(more) >= reserve {
            return Ok(());
        }
        let message = format!(
            "no space left: the disk of the uploads has {free} bytes, and {reserve} are kept for \
             sandboxes that run; free space, or send less than {more} bytes"
        );
        Err(Error::unavailable(message).with_reason("DISK_FULL"))
    }
}

fn disk_space(path: &Path) -> io::Result<(u64, u64)> {
    let found = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok((bytes(found.f_blocks), bytes(found.f_bavail)))
}

/// A file that goes unless it is kept, also when nobody waits for it any more.
#[derive(Debug)]
pub(super) struct Draft {
    path: PathBuf,
    file: tokio::fs::File,
}

impl Draft {
    pub(super) async fn begin(folder: &Path) -> Result<Self> {
        let path = folder.join(format!("{}.draft", ids::hex(&ids::random::<16>())));
        let opened = tokio::fs::File::create_new(&path).await;
        let file = opened.map_err(|e| failed("making", &path, &e))?;
        Ok(Self { path, file })
    }

    /// Takes exactly `length` bytes.
    pub(super) async fn fill<E: std::fmt::Display>(
        &mut self,
        length: u64,
        bounds: &Bounds,
        body: impl Stream<Item = std::result::Result<Bytes, E>>,
    ) -> Result<()> {
        // A piece without bytes is no sign of life.
        let pieces = body.filter(|piece| {
            let counts = piece.as_ref().map_or(true, |bytes| !bytes.is_empty());
            std::future::ready(counts)
        });
        let mut pieces = std::pin::pin!(pieces);
        let (mut received, mut unchecked) = (0_u64, 0_u64);
        loop {
            let next = tokio::time::timeout(bounds.idle_max, pieces.next()).await;
            let next = next.map_err(|_| {
                let seconds = bounds.idle_max.as_secs();
                Error::invalid("body", format!("nothing came for {seconds} s; send it again"))
                    .with_reason("UPLOAD_STALLED")
            })?;
            let Some(piece) = next else { break };
            let piece =
                piece.map_err(|error| Error::invalid("body", format!("broke off: {error}")))?;
            received += piece.len() as u64;
            unchecked += piece.len() as u64;
            if received > length {
                break;
            }
            if unchecked >= bounds.disk_check_bytes {
                unchecked = 0;
                bounds.check_disk(&self.path, 0)?;
            }
            let written = self.file.write_all(&piece).await;
            written.map_err(|e| failed("writing", &self.path, &e))?;
        }
        if received != length {
            let problem = format!("has not the {length} bytes that Content-Length promised");
            return Err(Error::invalid("body", problem));
        }
        self.file.sync_all().await.map_err(|e| failed("writing", &self.path, &e))
    }

    /// Gives it its place, as used `now`.
    pub(super) async fn keep(self, place: &Path, now: Timestamp) -> Result<()> {
        let file = self.file.try_clone().await.map_err(|e| failed("keeping", &self.path, &e))?;
        let file = file.into_std().await;
        file.set_modified(moment(now)).map_err(|e| failed("writing", &self.path, &e))?;
        let kept = tokio::fs::rename(&self.path, place).await;
        kept.map_err(|e| failed("keeping", &self.path, &e))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // One that was kept isn't there any more; what stays goes at the next start.
        std::fs::remove_file(&self.path).ok();
    }
}
