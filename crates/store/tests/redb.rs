//! The store contract over both places, and what only a file can do.

use atoll_control::Documents;
use atoll_engine::Store;
use atoll_engine::seam::Change;
use atoll_store::RedbStore;
use atoll_testkit::{contract, sample};

#[tokio::test]
async fn memory_keeps_the_contract() {
    contract::store::run(async || RedbStore::in_memory().unwrap()).await;
}

#[tokio::test]
async fn a_file_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let mut number = 0;
    contract::store::run(async || {
        number += 1;
        RedbStore::open(&folder.path().join(format!("{number}.redb"))).unwrap()
    })
    .await;
}

#[tokio::test]
async fn documents_keep_their_contract_and_outlive_the_store() {
    contract::documents::run(&RedbStore::in_memory().unwrap()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.redb");
    let store = RedbStore::open(&path).unwrap();
    contract::documents::run(&store).await;
    assert!(store.put("thing", "big", vec![0; 5 << 20]).await.is_err(), "size is bounded");
    drop(store);
    let store = RedbStore::open(&path).unwrap();
    assert_eq!(store.all("thing").await.unwrap(), [("a".to_owned(), b"1".to_vec())]);
}

#[tokio::test]
async fn records_outlive_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.redb");
    let sandbox = sample::sandbox("s1", "t1");
    let store = RedbStore::open(&path).unwrap();
    store.commit(vec![Change::PutSandbox(Box::new(sandbox.clone()))]).await.unwrap();
    drop(store);
    let store = RedbStore::open(&path).unwrap();
    assert_eq!(store.load().await.unwrap().sandboxes, vec![sandbox]);
}

#[tokio::test]
async fn a_file_that_is_open_elsewhere_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.redb");
    let _first = RedbStore::open(&path).unwrap();
    let error = RedbStore::open(&path).err().unwrap();
    assert!(error.to_string().contains("records.redb"), "{error}");
}

#[test]
fn a_file_that_is_no_store_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.redb");
    std::fs::write(&path, b"not a database, but long enough to be looked at").unwrap();
    let error = RedbStore::open(&path).err().unwrap();
    assert!(error.to_string().contains("records.redb"), "{error}");
}
