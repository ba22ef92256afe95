//! A secret as it is kept.

use std::collections::BTreeMap;

use atoll_core::{Error, Result, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::secrets::{Secret, SecretValue};

/// The durable form of one secret with its newest value.
#[derive(Serialize, Deserialize)]
pub(crate) struct Record {
    tenant: String,
    id: String,
    name: String,
    version: u64,
    metadata: BTreeMap<String, String>,
    created_at: i64,
    updated_at: i64,
    value: String,
}

impl Record {
    pub(crate) fn bytes(tenant: &TenantId, secret: &Secret, value: &SecretValue) -> Vec<u8> {
        let record = Self {
            tenant: tenant.as_str().to_owned(),
            id: secret.id.clone(),
            name: secret.name.clone(),
            version: secret.version,
            metadata: secret.metadata.clone(),
            created_at: secret.created_at.as_micros(),
            updated_at: secret.updated_at.as_micros(),
            value: value.reveal().to_owned(),
        };
        serde_json::to_vec(&record).expect("texts and numbers are JSON")
    }

    pub(crate) fn read(key: &str, bytes: &[u8]) -> Result<(TenantId, Secret, SecretValue)> {
        // The parser's own words could quote a value, so they are not repeated.
        let record: Self = serde_json::from_slice(bytes)
            .map_err(|_| Error::internal(format!("the record of secret {key} can't be read")))?;
        let secret = Secret {
            id: record.id,
            name: record.name,
            version: record.version,
            metadata: record.metadata,
            created_at: Timestamp::from_micros(record.created_at),
            updated_at: Timestamp::from_micros(record.updated_at),
        };
        Ok((TenantId::parse(&record.tenant)?, secret, SecretValue::new(record.value)))
    }
}
