//! The service over documents in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use atoll_control::Documents;
use atoll_core::{Error, ErrorKind, Result, TenantId, Timestamp};
use atoll_vault::{Limits, Now, SecretValue, Secrets};

#[derive(Default)]
struct Memory {
    kept: Mutex<BTreeMap<(&'static str, String), Vec<u8>>>,
    full: Mutex<bool>,
}

#[async_trait]
impl Documents for Memory {
    async fn put(&self, kind: &'static str, key: &str, bytes: Vec<u8>) -> Result<()> {
        if *self.full.lock().unwrap() {
            return Err(Error::unavailable("the disk is full"));
        }
        self.kept.lock().unwrap().insert((kind, key.to_owned()), bytes);
        Ok(())
    }

    async fn remove(&self, kind: &'static str, key: &str) -> Result<()> {
        self.kept.lock().unwrap().remove(&(kind, key.to_owned()));
        Ok(())
    }

    async fn all(&self, kind: &'static str) -> Result<Vec<(String, Vec<u8>)>> {
        let kept = self.kept.lock().unwrap();
        let of_kind = kept.iter().filter(|((k, _), _)| *k == kind);
        Ok(of_kind.map(|((_, key), bytes)| (key.clone(), bytes.clone())).collect())
    }
}

fn now() -> Now {
    let ticks = Mutex::new(0);
    Arc::new(move || {
        let mut ticks = ticks.lock().unwrap();
        *ticks += 1;
        Timestamp::from_micros(*ticks)
    })
}

async fn open(memory: &Arc<Memory>, limits: Limits) -> Secrets {
    Secrets::open(memory.clone(), limits, now()).await.unwrap()
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.to_owned())
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

#[tokio::test]
async fn a_secret_survives_a_restart_and_is_found_by_id_and_by_name() {
    let memory = Arc::new(Memory::default());
    let alice = tenant("alice");
    let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    let secrets = open(&memory, Limits::default()).await;
    let made = secrets.create(&alice, "API-Key", value("v1"), labels.clone()).await.unwrap();
    assert_eq!((made.name.as_str(), made.version), ("api-key", 1));
    let updated = secrets.update(&alice, "Api-Key", value("v2"), None).await.unwrap();
    assert_eq!((updated.version, &updated.metadata), (2, &labels));
    assert!(updated.updated_at > made.updated_at);

    let again = open(&memory, Limits::default()).await;
    assert_eq!(again.get(&alice, &made.id).await.unwrap(), updated);
    assert_eq!(again.value(&alice, "api-key").await.unwrap().reveal(), "v2");
    again.remove(&alice, &made.id).await.unwrap();
    assert_eq!(again.get(&alice, "api-key").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(open(&memory, Limits::default()).await.list(&alice).await.is_empty());
}

#[tokio::test]
async fn tenants_do_not_see_each_other_and_names_are_unique_for_one() {
    let memory = Arc::new(Memory::default());
    let (alice, bob) = (tenant("alice"), tenant("bob"));
    let secrets = open(&memory, Limits::default()).await;
    let made = secrets.create(&alice, "k", value("a"), BTreeMap::new()).await.unwrap();
    secrets.create(&bob, "k", value("b"), BTreeMap::new()).await.unwrap();
    let taken = secrets.create(&alice, "K", value("c"), BTreeMap::new()).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Conflict);
    assert_eq!(secrets.get(&bob, &made.id).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(secrets.value(&alice, "k").await.unwrap().reveal(), "a");
    assert_eq!(secrets.list(&alice).await, [made]);
}

#[tokio::test]
async fn bounds_hold_and_a_failed_write_changes_nothing() {
    let memory = Arc::new(Memory::default());
    let alice = tenant("alice");
    let secrets = open(&memory, Limits { secrets_per_tenant_max: 1, value_bytes_max: 4 }).await;
    for name in ["", "sec_x", "a{b", "a/b", &"x".repeat(129)] {
        let refused = secrets.create(&alice, name, value("v"), BTreeMap::new()).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid, "{name:?}");
    }
    let long = secrets.create(&alice, "k", value("12345"), BTreeMap::new()).await.unwrap_err();
    assert_eq!(long.kind(), ErrorKind::Invalid);
    assert!(!long.message().contains("12345"), "a value must never be repeated");
    *memory.full.lock().unwrap() = true;
    assert!(secrets.create(&alice, "k", value("v"), BTreeMap::new()).await.is_err());
    assert!(secrets.list(&alice).await.is_empty());
    *memory.full.lock().unwrap() = false;
    secrets.create(&alice, "k", value("v"), BTreeMap::new()).await.unwrap();
    let many = secrets.create(&alice, "l", value("v"), BTreeMap::new()).await.unwrap_err();
    assert_eq!(many.kind(), ErrorKind::Exhausted);
}

#[test]
fn a_value_is_never_printed() {
    assert!(!format!("{:?}", value("hunter2")).contains("hunter2"));
}
