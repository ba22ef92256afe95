//! Downloads of layers to disk.

use super::{
    LayerBlob,
    session::{Failure, Session},
};
use crate::{
    Error,
    digest::Digest,
    layers::Fetched,
    scratch::{Scratch, ScratchDir},
    unpack::Section,
};
use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::Method;
use sha2::{Digest as _, Sha256};
use std::{fs::File, io::Write};
use tokio::sync::mpsc;

/// Chunks between the network and the disk; bounds the memory of one download.
const CHUNKS_IN_FLIGHT: usize = 32;

impl Session {
    /// Downloads a layer and checks its size and digest; `received` is told of every chunk's bytes,
    /// negatively when a download starts over.
    pub(crate) async fn download(
        &self,
        layer: &LayerBlob,
        scratch: &ScratchDir,
        received: &(dyn Fn(i64) + Sync),
    ) -> Result<Fetched, Error> {
        self.retrying(|| async move {
            let blob = scratch.reserve("blob");
            let mut counted = 0;
            let result = self.try_download(layer, &blob, received, &mut counted).await;
            match result {
                Ok(()) => {
                    let section =
                        Section { path: blob.path().to_owned(), offset: 0, size: layer.size };
                    Ok(Fetched { section, _blob: Some(blob) })
                }
                Err(failure) => {
                    received(-counted);
                    Err(failure)
                }
            }
        })
        .await
    }

    async fn try_download(
        &self,
        layer: &LayerBlob,
        blob: &Scratch,
        received: &(dyn Fn(i64) + Sync),
        counted: &mut i64,
    ) -> Result<(), Failure> {
        let response =
            self.try_request(&Method::GET, &format!("blobs/{}", layer.blob), None).await?;
        let path = blob.path().to_owned();
        let failed = |e| Failure::from(Error::io(self.image(), "storing layer in", &path, e));
        let (chunks, written) = writer(File::create(&path).map_err(failed)?);
        let mut stream = response.bytes_stream();
        let mut size = 0;
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| self.broken_off(&error))?;
            size += chunk.len() as u64;
            if size > layer.size {
                return Err(self.wrong_size(layer, "more"));
            }
            let count = i64::try_from(chunk.len()).unwrap_or(0);
            *counted += count;
            received(count);
            if chunks.send(chunk).await.is_err() {
                break; // The writer stopped; its result says why.
            }
        }
        drop(chunks);
        let digest = match written.await {
            Ok(result) => result.map_err(failed)?,
            Err(_) => return Err(Error::Interrupted { image: self.image().to_owned() }.into()),
        };
        if size < layer.size {
            return Err(self.wrong_size(layer, "fewer"));
        }
        if digest != layer.blob {
            return Err(Failure::from(Error::Digest {
                image: self.image().to_owned(),
                what: "a layer".into(),
                expected: layer.blob.to_string(),
                actual: digest.to_string(),
            }));
        }
        Ok(())
    }

    fn wrong_size(&self, layer: &LayerBlob, how: &str) -> Failure {
        let reason = format!("it sent {how} than the {} bytes of layer {}", layer.size, layer.blob);
        Failure { error: self.unreachable(reason), transient: true }
    }
}

/// Hashes and writes chunks on a thread that may block.
fn writer(
    mut file: File,
) -> (mpsc::Sender<Bytes>, tokio::task::JoinHandle<std::io::Result<Digest>>) {
    let (sender, mut chunks) = mpsc::channel::<Bytes>(CHUNKS_IN_FLIGHT);
    let work = move || {
        let mut hasher = Sha256::new();
        while let Some(chunk) = chunks.blocking_recv() {
            hasher.update(&chunk);
            file.write_all(&chunk)?;
        }
        Ok(Digest::finish(hasher))
    };
    (sender, tokio::task::spawn_blocking(work))
}
