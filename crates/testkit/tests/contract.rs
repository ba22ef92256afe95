//! The store that fails on demand is a store when it isn't asked to fail.

use std::sync::Arc;

use async_trait::async_trait;
use atoll_engine::Store;
use atoll_engine::seam::{Change, Loaded, StoreError};
use atoll_testkit::{FaultyStore, contract};

struct Shared(Arc<FaultyStore>);

#[async_trait]
impl Store for Shared {
    async fn load(&self) -> Result<Loaded, StoreError> {
        self.0.load().await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.0.commit(changes).await
    }
}

#[tokio::test]
async fn the_faulty_store_keeps_the_contract() {
    contract::store::run(async || Shared(FaultyStore::new())).await;
}
