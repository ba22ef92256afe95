//! Small documents beside the records, in the same file.

use async_trait::async_trait;
use atoll_control::Documents;
use atoll_core::{Error, Result};
use atoll_engine::seam::StoreError;

use crate::disk::{RedbStore, blocking};

/// Longest document; larger things belong in files of their own.
const BYTES_MAX: usize = 4 * 1024 * 1024;

fn unavailable(error: StoreError) -> Error {
    Error::unavailable(format!("the document can't be kept or read: {error}; try again later"))
}

#[async_trait]
impl Documents for RedbStore {
    async fn put(&self, kind: &'static str, key: &str, bytes: Vec<u8>) -> Result<()> {
        if bytes.len() > BYTES_MAX {
            return Err(Error::invalid(kind, format!("use at most {BYTES_MAX} bytes")));
        }
        let (store, key) = (self.clone(), key.to_owned());
        let write = move || store.put_document(kind, &key, Some(bytes));
        blocking("writing a document", write).await.map_err(unavailable)
    }

    async fn remove(&self, kind: &'static str, key: &str) -> Result<()> {
        let (store, key) = (self.clone(), key.to_owned());
        let write = move || store.put_document(kind, &key, None);
        blocking("removing a document", write).await.map_err(unavailable)
    }

    async fn all(&self, kind: &'static str) -> Result<Vec<(String, Vec<u8>)>> {
        let store = self.clone();
        blocking("reading documents", move || store.documents(kind)).await.map_err(unavailable)
    }
}
