//! What is on disk: JSON with a version number.

use std::collections::BTreeMap;

use atoll_control::Pool;
use atoll_core::{Sandbox, Snapshot};
use serde::{Deserialize, Serialize};

/// The version written. Grows when an older server could misread a record.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) spec: Spec,
    pub(crate) created_at: i64,
    pub(crate) access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stock_of: Option<String>,
    pub(crate) life: Life,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) source: Source,
    #[serde(default)]
    pub(crate) entrypoint: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cpu_millis: Option<u64>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) pids: Option<u64>,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) extensions: BTreeMap<String, String>,
    pub(crate) platform: Option<Platform>,
    pub(crate) isolation: Isolation,
    #[serde(default)]
    pub(crate) mounts: Vec<Mount>,
    pub(crate) network: Network,
    #[serde(default)]
    pub(crate) user: Option<String>,
    #[serde(default)]
    pub(crate) workdir: Option<String>,
    #[serde(default)]
    pub(crate) ready: Option<Ready>,
    #[serde(default)]
    pub(crate) wake_for_micros: Option<u64>,
    #[serde(default)]
    pub(crate) template: Option<Template>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) command: String,
    pub(crate) every_micros: u64,
    pub(crate) within_micros: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Template {
    pub(crate) id: String,
    pub(crate) alias: Option<String>,
    pub(crate) build: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    Image(String),
    Snapshot(String),
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Platform {
    pub(crate) os: String,
    pub(crate) arch: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Isolation {
    Default,
    Native,
    Oci(String),
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) name: String,
    pub(crate) source: MountSource,
    pub(crate) target: String,
    pub(crate) sub_path: Option<String>,
    pub(crate) read_only: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MountSource {
    Host(String),
    Volume { name: String, create: bool, delete_with_sandbox: bool },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Network {
    Internet,
    Isolated,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Life {
    pub(crate) desired: Desired,
    pub(crate) phase: Phase,
    #[serde(default)]
    pub(crate) keep: Keep,
    pub(crate) holds: bool,
    pub(crate) generation: u64,
    pub(crate) deadline: Option<Deadline>,
    #[serde(default)]
    pub(crate) expiry: Option<Expiry>,
    #[serde(default)]
    pub(crate) lifetime_micros: Option<u64>,
    #[serde(default)]
    pub(crate) rests: bool,
    pub(crate) changed_at: i64,
    pub(crate) attempts: u32,
    pub(crate) retry_at: Option<i64>,
    pub(crate) diagnostic: Option<Diagnostic>,
    pub(crate) timeline: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Desired {
    Running,
    Paused,
    Gone,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    Queued,
    Starting,
    Running,
    Pausing,
    Paused,
    Resuming,
    Stopping,
    Ended,
    Failed,
    Gone,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Deadline {
    pub(crate) at: i64,
    pub(crate) then: Expiry,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Expiry {
    Kill,
    Pause,
    PauseFiles,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Keep {
    #[default]
    Memory,
    Files,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Diagnostic {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) recommendation: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) at: i64,
    pub(crate) phase: Phase,
    pub(crate) message: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct PoolRecord {
    pub(crate) name: String,
    pub(crate) spec: Spec,
    pub(crate) size: usize,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct SnapshotRecord {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) sandbox: String,
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) hidden: bool,
    pub(crate) state: SnapshotState,
    pub(crate) changed_at: i64,
    pub(crate) created_at: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SnapshotState {
    Creating,
    Ready,
    Failed(String),
    Deleting,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    record: T,
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

pub(crate) fn sandbox_to_bytes(sandbox: &Sandbox) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Versioned { version: VERSION, record: SandboxRecord::from(sandbox) })
}

pub(crate) fn snapshot_to_bytes(snapshot: &Snapshot) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Versioned { version: VERSION, record: SnapshotRecord::from(snapshot) })
}

pub(crate) fn pool_to_bytes(pool: &Pool) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Versioned { version: VERSION, record: PoolRecord::from(pool) })
}

pub(crate) fn pool_from_bytes(bytes: &[u8]) -> Result<Pool, String> {
    let record: PoolRecord = read(bytes)?;
    Pool::try_from(record).map_err(|error| error.to_string())
}

pub(crate) fn sandbox_from_bytes(bytes: &[u8]) -> Result<Sandbox, String> {
    let record: SandboxRecord = read(bytes)?;
    Sandbox::try_from(record).map_err(|error| error.to_string())
}

pub(crate) fn snapshot_from_bytes(bytes: &[u8]) -> Result<Snapshot, String> {
    let record: SnapshotRecord = read(bytes)?;
    Snapshot::try_from(record).map_err(|error| error.to_string())
}

/// The version is read first: a newer record may not look like ours at all.
fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    let damaged = |error| format!("the record is damaged: {error}");
    let VersionOnly { version } = serde_json::from_slice(bytes).map_err(damaged)?;
    if version > VERSION {
        return Err(format!(
            "the record has version {version}, this server reads up to {VERSION}: use the newer \
             server that wrote it"
        ));
    }
    serde_json::from_slice::<Versioned<T>>(bytes).map(|v| v.record).map_err(damaged)
}

#[cfg(test)]
mod tests;
