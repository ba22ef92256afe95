//! Receiving one file: blocking writes on blocking threads, from a body that comes in pieces.

use crate::guest::{files::PREFIX, rest::Refusal};
use atoll_guest::{
    Guest, Identity,
    files::{Attributes, Incoming},
};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use flate2::write::MultiGzDecoder;
use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

/// Pieces are gathered up to this size before they go to a blocking thread.
const GATHERED_BYTES: usize = 256 * 1024;
/// What is given to the decompressor at once; it may make a thousand times as much of it.
const COMPRESSED_SLICE_BYTES: usize = 4096;

/// How an upload's bytes are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
}

impl Packing {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()) {
            None | Some(b"" | b"identity") => Ok(Self::Plain),
            Some(b"gzip" | b"x-gzip") => Ok(Self::Gzip),
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                let problem =
                    format!("Content-Encoding: {other:?} is not known; send gzip or none");
                Err(Refusal::invalid(problem))
            }
        }
    }
}

/// A file on its way in. Dropping it lets go of what is incomplete.
pub(super) struct Receiver {
    guest: Arc<Guest>,
    /// Away while a blocking thread works with it.
    file: Option<Incoming>,
    gathered: BytesMut,
}

impl Receiver {
    pub(super) async fn open(
        guest: &Arc<Guest>,
        path: PathBuf,
        owner: Identity,
        metadata: Attributes,
    ) -> Result<Self, Refusal> {
        let open = move || Incoming::new(path, owner, PREFIX, metadata);
        let file = guest.file_operation(None, open).await?;
        Ok(Self { guest: Arc::clone(guest), file: Some(file), gathered: BytesMut::new() })
    }

    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<(), Refusal> {
        self.gathered.extend_from_slice(&bytes);
        if self.gathered.len() >= GATHERED_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), Refusal> {
        let bytes = self.gathered.split().freeze();
        let mut file = self.file.take().expect("a receiver that failed is not used again");
        let write = move || file.write(&bytes).map(|()| file);
        self.file = Some(self.guest.file_operation(None, write).await?);
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<(), Refusal> {
        self.flush().await?;
        let file = self.file.take().expect("a receiver that failed is not used again");
        Ok(self.guest.file_operation(None, move || file.finish()).await?)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            let guest = Arc::clone(&self.guest);
            // Removing what is incomplete blocks.
            let remove = move || {
                drop(file);
                Ok(())
            };
            tokio::spawn(async move { guest.file_operation(None, remove).await });
        }
    }
}

/// Unpacks a body piece by piece.
pub(super) enum Unpacker {
    Plain,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
}

impl Unpacker {
    pub(super) fn new(packing: Packing) -> Self {
        match packing {
            Packing::Plain => Self::Plain,
            Packing::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
        }
    }

    /// The slices of a packed piece that may be unpacked one at a time.
    pub(super) fn slices(&self, packed: &Bytes) -> Vec<Bytes> {
        match self {
            Self::Plain => vec![packed.clone()],
            Self::Gzip(_) => {
                let starts = (0..packed.len()).step_by(COMPRESSED_SLICE_BYTES);
                let end = |start: usize| (start + COMPRESSED_SLICE_BYTES).min(packed.len());
                starts.map(|start| packed.slice(start..end(start))).collect()
            }
        }
    }

    pub(super) fn unpack(&mut self, packed: Bytes) -> Result<Bytes, Refusal> {
        match self {
            Self::Plain => Ok(packed),
            Self::Gzip(decoder) => {
                decoder.write_all(&packed).map_err(not_gzip)?;
                decoder.flush().map_err(not_gzip)?;
                Ok(std::mem::take(decoder.get_mut()).into())
            }
        }
    }

    /// What is left at the end, which must be one.
    pub(super) fn finish(self) -> Result<Bytes, Refusal> {
        match self {
            Self::Plain => Ok(Bytes::new()),
            Self::Gzip(decoder) => decoder.finish().map(Bytes::from).map_err(not_gzip),
        }
    }
}

fn not_gzip(error: io::Error) -> Refusal {
    Refusal::invalid(format!("the body is not valid gzip: {error}"))
}

/// Reads the rest of a refused request, up to a bound, so that its sender gets to read why.
pub(super) async fn drain<E>(mut body: impl futures_util::Stream<Item = Result<Bytes, E>> + Unpin) {
    use futures_util::StreamExt;
    const DRAINED_BYTES_MAX: usize = 1 << 20;
    let mut read = 0;
    while let Some(Ok(bytes)) = body.next().await {
        read += bytes.len();
        if read > DRAINED_BYTES_MAX {
            return;
        }
    }
}
