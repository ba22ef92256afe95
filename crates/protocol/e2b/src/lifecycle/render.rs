//! What a client sees.

use std::net::IpAddr;

use atoll_control::Sample;
use atoll_core::{Expiry, Keep, MountSource, Network, Phase, Sandbox, Source, Timestamp};
use axum::http::{HeaderMap, header};
use serde_json::{Map, Value, json};

use super::marks::{self, Marks, OnTimeout};
use super::state::DoorConfig;
use super::{time, token};

/// The version of the in-sandbox API that we speak; clients switch features on by it.
const ENVD_VERSION: &str = "0.6.13";
/// Deprecated, but clients need it to be there.
const CLIENT_ID: &str = "atoll";
/// Shown as the end of what has none: the last second of the year 9999.
const NO_END: Timestamp = Timestamp::from_micros(253_402_300_799_000_000);

/// The contract's two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Paused,
}

impl State {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
        }
    }
}

/// The contract's state for a phase; `None` is not there for clients.
pub(crate) fn state(phase: Phase) -> Option<State> {
    match phase {
        Phase::Running => Some(State::Running),
        Phase::Pausing | Phase::Paused | Phase::Resuming => Some(State::Paused),
        Phase::Queued
        | Phase::Starting
        | Phase::Stopping
        | Phase::Ended
        | Phase::Failed
        | Phase::Gone => None,
    }
}

/// The domain below which clients look for ports: the operator's, else the host they used. An
/// address has no names below it; this machine's own goes by its name.
pub(crate) fn domain(config: &DoorConfig, headers: &HeaderMap) -> Option<String> {
    if config.domain.is_some() {
        return config.domain.clone();
    }
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (name, Some(port)),
        Some(_) | None => (host, None),
    };
    let address: Option<IpAddr> = name.trim_matches(['[', ']']).parse().ok();
    let name = match address {
        Some(address) if address.is_loopback() => "localhost",
        Some(_) => return None,
        None => name,
    };
    let fits = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
    if name.is_empty() || name.len() > 253 || !name.bytes().all(fits) {
        return None;
    }
    Some(port.map_or_else(|| name.to_owned(), |port| format!("{name}:{port}")))
}

/// The answer to a creation, a connection, a resumption.
pub(crate) fn sandbox(sandbox: &Sandbox, domain: Option<&str>) -> Value {
    let marks = Marks::of(sandbox);
    let traffic = (!marks.public_traffic).then(|| token::traffic(&sandbox.access_token));
    let mut object = json!({
        "templateID": template_id(sandbox),
        "sandboxID": sandbox.id.as_str(),
        "clientID": CLIENT_ID,
        "envdVersion": ENVD_VERSION,
        // Null where there is none: SDKs of 2025 take an absent member for a token.
        "envdAccessToken": marks.secure.then_some(&sandbox.access_token),
        "trafficAccessToken": traffic,
        "domain": domain,
    });
    if let Some(alias) = alias(sandbox) {
        object["alias"] = alias.into();
    }
    object
}

/// A sandbox in a list.
pub(crate) fn listed(config: &DoorConfig, sandbox: &Sandbox, state: State) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("templateID", template_id(sandbox).into());
    put("sandboxID", sandbox.id.as_str().into());
    put("clientID", CLIENT_ID.into());
    put("startedAt", time::text(sandbox.created_at).into());
    put("endAt", time::text(end_at(sandbox, state)).into());
    put("cpuCount", cpu_count(config, sandbox).into());
    put("memoryMB", (memory_bytes(config, sandbox) >> 20).into());
    put("diskSizeMB", (config.disk_bytes >> 20).into());
    put("state", state.text().into());
    put("envdVersion", ENVD_VERSION.into());
    put("metadata", json!(sandbox.spec.metadata));
    put("volumeMounts", volume_mounts(sandbox));
    if let Some(alias) = alias(sandbox) {
        put("alias", alias.into());
    }
    object
}

/// A sandbox by itself.
pub(crate) fn detail(
    config: &DoorConfig,
    sandbox: &Sandbox,
    state: State,
    domain: Option<&str>,
) -> Value {
    let marks = Marks::of(sandbox);
    let mut object = listed(config, sandbox, state);
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    if marks.secure {
        put("envdAccessToken", sandbox.access_token.as_str().into());
    }
    let reaches_internet = config.internet && sandbox.spec.network == Network::Internet;
    put("allowInternetAccess", reaches_internet.into());
    put("domain", domain.into());
    let mut network = json!({"allowPublicTraffic": marks.public_traffic});
    if let Some(host) = &marks.mask_host {
        network["maskRequestHost"] = host.as_str().into();
    }
    if !marks.deny_out.is_empty() {
        network["denyOut"] = json!(marks.deny_out);
    }
    put("network", network);
    let on_timeout = match marks::on_timeout(sandbox).expiry() {
        Expiry::Kill => "kill",
        Expiry::Pause(_) => "pause",
    };
    let auto_resume = sandbox.spec.wake_for.is_some();
    put("lifecycle", json!({"autoResume": auto_resume, "onTimeout": on_timeout}));
    if state == State::Paused {
        let mode = match sandbox.life.keep() {
            Keep::Memory => "full",
            Keep::Files => "filesystem",
        };
        put("pauseMode", mode.into());
    }
    object.into()
}

/// What a sandbox used at one moment.
pub(crate) fn metric(config: &DoorConfig, sandbox: &Sandbox, sample: &Sample) -> Value {
    let (cpus, usage) = (cpu_count(config, sandbox), &sample.usage);
    let memory_total = match usage.memory_limit_bytes {
        0 => memory_bytes(config, sandbox),
        limit => limit,
    };
    #[allow(clippy::cast_precision_loss, reason = "a number of cores is small")]
    let of_all_cpus = sample.cpu_percent / cpus as f64;
    json!({
        "timestamp": time::text(sample.at),
        "timestampUnix": time::seconds(sample.at),
        "cpuCount": cpus,
        "cpuUsedPct": of_all_cpus,
        "memUsed": usage.memory_bytes,
        "memTotal": memory_total,
        "memCache": usage.cache_bytes,
        "diskUsed": usage.disk_used_bytes,
        "diskTotal": usage.disk_total_bytes,
    })
}

fn template_id(sandbox: &Sandbox) -> &str {
    match (&sandbox.spec.template, &sandbox.spec.source) {
        (Some(template), _) => &template.id,
        (None, Source::Image(image)) => &image.reference,
        (None, Source::Snapshot(id)) => id.as_str(),
    }
}

fn alias(sandbox: &Sandbox) -> Option<&str> {
    sandbox.spec.template.as_ref()?.alias.as_deref()
}

fn end_at(sandbox: &Sandbox, state: State) -> Timestamp {
    match (state, marks::on_timeout(sandbox)) {
        (State::Paused, _) => sandbox.life.changed_at(),
        (State::Running, OnTimeout::Never) => NO_END,
        (State::Running, _) => sandbox.life.deadline().map_or(NO_END, |deadline| deadline.at),
    }
}

fn cpu_count(config: &DoorConfig, sandbox: &Sandbox) -> u64 {
    let millis = sandbox.spec.resources.cpu_millis.unwrap_or(config.default_cpu_millis);
    millis.div_ceil(1000).max(1)
}

fn memory_bytes(config: &DoorConfig, sandbox: &Sandbox) -> u64 {
    sandbox.spec.resources.memory_bytes.unwrap_or(config.default_memory_bytes)
}

fn volume_mounts(sandbox: &Sandbox) -> Value {
    let mounts = sandbox.spec.mounts.iter().filter_map(|mount| match &mount.source {
        MountSource::Volume { name, .. } => Some(json!({"name": name, "path": mount.target})),
        MountSource::Host(_) => None,
    });
    mounts.collect()
}
