//! The store over redb: one transaction per commit.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use atoll_engine::seam::{Change, Loaded, Store, StoreError};
use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase, Table, TableDefinition};

use crate::record;

const SANDBOXES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sandboxes");
const SNAPSHOTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("snapshots");
const POOLS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("pools");
const DOCUMENTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("documents");

type Rows = Vec<(String, Vec<u8>)>;

/// Keeps records in one file, or in memory for tests and trials.
#[derive(Clone)]
pub struct RedbStore {
    /// Where it can be opened again; nowhere for one in memory.
    path: Option<PathBuf>,
    /// None after an error of the disk: redb trusts nothing in memory then, and wants to be opened
    /// anew.
    database: Arc<Mutex<Option<Database>>>,
}

fn failed(doing: &'static str) -> impl FnOnce(redb::Error) -> StoreError {
    move |error| StoreError { doing, cause: error.to_string() }
}

impl RedbStore {
    /// Opens the file at `path` and makes it when it isn't there.
    ///
    /// # Errors
    /// When the file can't be opened, is damaged, or another server has it open.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::with(Some(path.to_owned()), create(path)?)
    }

    /// A store that ends with the process.
    ///
    /// # Errors
    /// When memory is short.
    pub fn in_memory() -> Result<Self, StoreError> {
        let database = Database::builder()
            .create_with_backend(InMemoryBackend::new())
            .map_err(|error| failed("making records in memory")(error.into()))?;
        Self::with(None, database)
    }

    /// Makes the tables, so that later reads always find them.
    fn with(path: Option<PathBuf>, database: Database) -> Result<Self, StoreError> {
        let store = Self { path, database: Arc::new(Mutex::new(Some(database))) };
        store.write(Vec::new())?;
        Ok(store)
    }

    /// Writes all changes or none. After an error of the disk the file is opened again, so that
    /// a disk that has room again is used again.
    fn write(&self, changes: Vec<Encoded>) -> Result<(), StoreError> {
        let mut database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        if let (None, Some(path)) = (&*database, &self.path) {
            *database = Some(create(path)?);
        }
        let open = database.as_ref().ok_or_else(closed)?;
        let written = write(open, changes);
        if written.is_err() && self.path.is_some() {
            *database = None;
        }
        written.map_err(failed("writing records"))
    }

    fn read(&self) -> Result<Loaded, StoreError> {
        let doing = "reading records";
        let named = |id: &str, cause: String| StoreError { doing, cause: format!("{id}: {cause}") };
        let mut loaded = Loaded::default();
        for (id, bytes) in self.rows(SANDBOXES, "")? {
            let sandbox = record::sandbox_from_bytes(&bytes);
            loaded.sandboxes.push(sandbox.map_err(|e| named(&format!("sandbox {id}"), e))?);
        }
        for (id, bytes) in self.rows(SNAPSHOTS, "")? {
            let snapshot = record::snapshot_from_bytes(&bytes);
            loaded.snapshots.push(snapshot.map_err(|e| named(&format!("snapshot {id}"), e))?);
        }
        for (name, bytes) in self.rows(POOLS, "")? {
            let pool = record::pool_from_bytes(&bytes);
            loaded.pools.push(pool.map_err(|e| named(&format!("pool {name}"), e))?);
        }
        Ok(loaded)
    }

    /// The documents of a kind, by key.
    pub(crate) fn documents(&self, kind: &str) -> Result<Rows, StoreError> {
        let prefix = document_id(kind, "");
        let keyed = |(id, bytes): (String, Vec<u8>)| (id[prefix.len()..].to_owned(), bytes);
        Ok(self.rows(DOCUMENTS, &prefix)?.into_iter().map(keyed).collect())
    }

    /// Writes one document, or removes it.
    pub(crate) fn put_document(
        &self,
        kind: &str,
        key: &str,
        bytes: Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        self.write(vec![Encoded { kind: Kind::Document, id: document_id(kind, key), bytes }])
    }

    fn rows(
        &self,
        table: TableDefinition<'_, &str, &[u8]>,
        prefix: &str,
    ) -> Result<Rows, StoreError> {
        let database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        rows(database.as_ref().ok_or_else(closed)?, table, prefix)
            .map_err(failed("reading records"))
    }
}

/// No kind has a zero in it, so that kinds can't run into each other.
fn document_id(kind: &str, key: &str) -> String {
    format!("{kind}\0{key}")
}

fn create(path: &Path) -> Result<Database, StoreError> {
    Database::create(path).map_err(|error| StoreError {
        doing: "opening the file of records",
        cause: format!("{}: {error}", path.display()),
    })
}

fn closed() -> StoreError {
    let cause = "the file was closed after an error of the disk".to_owned();
    StoreError { doing: "using the file of records", cause }
}

fn write(database: &Database, changes: Vec<Encoded>) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut sandboxes = transaction.open_table(SANDBOXES)?;
        let mut snapshots = transaction.open_table(SNAPSHOTS)?;
        let mut pools = transaction.open_table(POOLS)?;
        let mut documents = transaction.open_table(DOCUMENTS)?;
        for Encoded { kind, id, bytes } in changes {
            let table = match kind {
                Kind::Sandbox => &mut sandboxes,
                Kind::Snapshot => &mut snapshots,
                Kind::Pool => &mut pools,
                Kind::Document => &mut documents,
            };
            put(table, &id, bytes)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// The rows whose ids begin with `prefix`.
fn rows(
    database: &Database,
    table: TableDefinition<'_, &str, &[u8]>,
    prefix: &str,
) -> Result<Rows, redb::Error> {
    let transaction = database.begin_read()?;
    let table = transaction.open_table(table)?;
    let mut rows = Vec::new();
    for row in table.range(prefix..)? {
        let (id, bytes) = row?;
        if !id.value().starts_with(prefix) {
            break;
        }
        rows.push((id.value().to_owned(), bytes.value().to_owned()));
    }
    Ok(rows)
}

fn put(
    table: &mut Table<'_, &str, &[u8]>,
    id: &str,
    bytes: Option<Vec<u8>>,
) -> Result<(), redb::Error> {
    match bytes {
        Some(bytes) => table.insert(id, bytes.as_slice())?,
        None => table.remove(id)?,
    };
    Ok(())
}

enum Kind {
    Sandbox,
    Snapshot,
    Pool,
    Document,
}

/// A change ready to be written; no bytes: forget it.
struct Encoded {
    kind: Kind,
    id: String,
    bytes: Option<Vec<u8>>,
}

fn encode(change: Change) -> Result<Encoded, StoreError> {
    let failed = |id: &str, error: serde_json::Error| StoreError {
        doing: "encoding a record",
        cause: format!("{id}: {error}"),
    };
    let (kind, id, bytes) = match change {
        Change::PutSandbox(sandbox) => {
            let id = sandbox.id.to_string();
            let bytes = record::sandbox_to_bytes(&sandbox).map_err(|e| failed(&id, e))?;
            (Kind::Sandbox, id, Some(bytes))
        }
        Change::DropSandbox(id) => (Kind::Sandbox, id.to_string(), None),
        Change::PutSnapshot(snapshot) => {
            let id = snapshot.id.to_string();
            let bytes = record::snapshot_to_bytes(&snapshot).map_err(|e| failed(&id, e))?;
            (Kind::Snapshot, id, Some(bytes))
        }
        Change::DropSnapshot(id) => (Kind::Snapshot, id.to_string(), None),
        Change::PutPool(pool) => {
            let bytes = record::pool_to_bytes(&pool).map_err(|e| failed(&pool.name, e))?;
            (Kind::Pool, pool.name, Some(bytes))
        }
        Change::DropPool(name) => (Kind::Pool, name, None),
    };
    Ok(Encoded { kind, id, bytes })
}

/// Waiting for the disk happens on a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(StoreError { doing, cause: error.to_string() }))
}

#[async_trait]
impl Store for RedbStore {
    async fn load(&self) -> Result<Loaded, StoreError> {
        let store = self.clone();
        blocking("reading records", move || store.read()).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let store = self.clone();
        blocking("writing records", move || {
            let encoded = changes.into_iter().map(encode).collect::<Result<_, _>>()?;
            store.write(encoded)
        })
        .await
    }
}
