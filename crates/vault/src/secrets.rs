//! The service.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use atoll_control::Documents;
use atoll_core::{Error, ErrorKind, Result, TenantId, Timestamp};
use tokio::sync::Mutex;

use crate::record::Record;
use crate::rules::{self, ID_PREFIX, Limits};

/// The kind under which records are kept.
const KIND: &str = "secret";

/// Tells the time.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What anybody may know of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Lasting id.
    pub id: String,
    /// Name, unique for its tenant.
    pub name: String,
    /// Counts its values, from 1.
    pub version: u64,
    /// The owner's labels.
    pub metadata: BTreeMap<String, String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its value was last replaced.
    pub updated_at: Timestamp,
}

/// A value. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    /// Takes a value in.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The value itself, for whoever must send it on.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

type OfTenant = BTreeMap<String, (Secret, SecretValue)>;

/// All secrets. Changes are durable when they answer.
pub struct Secrets {
    documents: Arc<dyn Documents>,
    limits: Limits,
    now: Now,
    /// Held over a change and its commit, so that names stay unique and quotas exact.
    tenants: Mutex<HashMap<TenantId, OfTenant>>,
}

impl Secrets {
    /// Reads what was kept.
    ///
    /// # Errors
    /// When the documents, or one record among them, can't be read.
    pub async fn open(documents: Arc<dyn Documents>, limits: Limits, now: Now) -> Result<Self> {
        let mut tenants: HashMap<TenantId, OfTenant> = HashMap::new();
        for (key, bytes) in documents.all(KIND).await? {
            let (tenant, secret, value) = Record::read(&key, &bytes)?;
            tenants.entry(tenant).or_default().insert(secret.name.clone(), (secret, value));
        }
        Ok(Self { documents, limits, now, tenants: Mutex::new(tenants) })
    }

    /// Keeps a new secret.
    ///
    /// # Errors
    /// `Invalid`, `Conflict` when the name is taken, `Exhausted` when there are too many.
    pub async fn create(
        &self,
        tenant: &TenantId,
        name: &str,
        value: SecretValue,
        metadata: BTreeMap<String, String>,
    ) -> Result<Secret> {
        let name = rules::name(name)?;
        rules::check_value(&self.limits, value.reveal())?;
        rules::check_metadata(&metadata)?;
        let mut tenants = self.tenants.lock().await;
        let present = tenants.entry(tenant.clone()).or_default();
        if present.contains_key(&name) {
            return Err(Error::conflict(format!("a secret named {name:?} exists already")));
        }
        if present.len() >= self.limits.secrets_per_tenant_max {
            let max = self.limits.secrets_per_tenant_max;
            let message = format!("there are {max} secrets already; remove one first");
            return Err(Error::new(ErrorKind::Exhausted, message));
        }
        let now = (self.now)();
        let id = new_id()?;
        let secret = Secret { id, name, version: 1, metadata, created_at: now, updated_at: now };
        self.keep(tenant, &secret, &value).await?;
        present.insert(secret.name.clone(), (secret.clone(), value));
        Ok(secret)
    }

    /// Gives a secret a new value, and new labels if there are any.
    ///
    /// # Errors
    /// `Invalid` or `NotFound`.
    pub async fn update(
        &self,
        tenant: &TenantId,
        id_or_name: &str,
        value: SecretValue,
        metadata: Option<BTreeMap<String, String>>,
    ) -> Result<Secret> {
        rules::check_value(&self.limits, value.reveal())?;
        if let Some(metadata) = &metadata {
            rules::check_metadata(metadata)?;
        }
        let mut tenants = self.tenants.lock().await;
        let kept = tenants.get_mut(tenant).and_then(|present| {
            let name = name_of(present, id_or_name)?;
            present.get_mut(&name)
        });
        let kept = kept.ok_or_else(|| unknown(id_or_name))?;
        let mut secret = kept.0.clone();
        secret.version += 1;
        secret.updated_at = (self.now)();
        if let Some(metadata) = metadata {
            secret.metadata = metadata;
        }
        self.keep(tenant, &secret, &value).await?;
        *kept = (secret.clone(), value);
        Ok(secret)
    }

    /// A tenant's secrets, newest first.
    pub async fn list(&self, tenant: &TenantId) -> Vec<Secret> {
        let tenants = self.tenants.lock().await;
        let present = tenants.get(tenant).into_iter().flat_map(BTreeMap::values);
        let mut secrets: Vec<_> = present.map(|(secret, _)| secret.clone()).collect();
        secrets.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        secrets
    }

    /// One secret.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn get(&self, tenant: &TenantId, id_or_name: &str) -> Result<Secret> {
        self.find(tenant, id_or_name).await.map(|(secret, _)| secret)
    }

    /// The newest value of a secret, for the server's own use.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn value(&self, tenant: &TenantId, id_or_name: &str) -> Result<SecretValue> {
        self.find(tenant, id_or_name).await.map(|(_, value)| value)
    }

    /// Forgets a secret.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn remove(&self, tenant: &TenantId, id_or_name: &str) -> Result<()> {
        let mut tenants = self.tenants.lock().await;
        let present = tenants.get_mut(tenant).ok_or_else(|| unknown(id_or_name))?;
        let name = name_of(present, id_or_name).ok_or_else(|| unknown(id_or_name))?;
        let id = present.get(&name).map(|(secret, _)| secret.id.clone()).unwrap_or_default();
        self.documents.remove(KIND, &id).await?;
        present.remove(&name);
        Ok(())
    }

    async fn find(&self, tenant: &TenantId, id_or_name: &str) -> Result<(Secret, SecretValue)> {
        let tenants = self.tenants.lock().await;
        let found = tenants.get(tenant).and_then(|present| {
            let name = name_of(present, id_or_name)?;
            present.get(&name).cloned()
        });
        found.ok_or_else(|| unknown(id_or_name))
    }

    async fn keep(&self, tenant: &TenantId, secret: &Secret, value: &SecretValue) -> Result<()> {
        self.documents.put(KIND, &secret.id, Record::bytes(tenant, secret, value)).await
    }
}

fn name_of(present: &OfTenant, id_or_name: &str) -> Option<String> {
    let name = id_or_name.to_lowercase();
    if present.contains_key(&name) {
        return Some(name);
    }
    let mut secrets = present.values().map(|(secret, _)| secret);
    secrets.find(|secret| secret.id == id_or_name).map(|secret| secret.name.clone())
}

fn unknown(id_or_name: &str) -> Error {
    let shown: String = id_or_name.chars().filter(|c| !c.is_control()).take(128).collect();
    Error::not_found(format_args!("secret {shown:?}"))
}

fn new_id() -> Result<String> {
    let mut bytes = [0; 10];
    getrandom::fill(&mut bytes)
        .map_err(|_| Error::internal("the machine gave no random numbers"))?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{ID_PREFIX}{digits}"))
}
