//! Templates and builds as clients see them.

use atoll_template::{Build, LogEntry, Status, Template};
use serde_json::{Value, json};

use super::Desk;
use crate::lifecycle::time;

/// The version of the in-sandbox API of every template.
const ENVD_VERSION: &str = "0.6.13";

pub(super) fn status(status: Status) -> &'static str {
    match status {
        Status::Waiting => "waiting",
        Status::Building => "building",
        Status::Ready => "ready",
        Status::Error => "error",
    }
}

/// A template, with what its main build says.
pub(super) fn template(desk: &Desk, template: &Template) -> Value {
    let main = desk.service.main_build(template);
    let (cpu_count, memory_mib) = sizes(desk, main.as_deref());
    json!({
        "templateID": template.id,
        "buildID": main.as_ref().map_or("", |build| build.id.as_str()),
        "cpuCount": cpu_count,
        "memoryMB": memory_mib,
        "diskSizeMB": desk.config.disk_bytes >> 20,
        "public": template.public,
        "aliases": template.names,
        "names": template.full_names(),
        "createdAt": time::text(template.created_at),
        "updatedAt": time::text(template.updated_at),
        "createdBy": null,
        "lastSpawnedAt": template.last_spawned_at.map(time::text),
        "spawnCount": template.spawn_count,
        "buildCount": template.build_count,
        "envdVersion": ENVD_VERSION,
        "buildStatus": main.as_ref().map_or("waiting", |build| status(build.status)),
        "isDefault": template.tenant.is_none(),
    })
}

/// One build among others.
pub(super) fn build(desk: &Desk, build: &Build) -> Value {
    let (cpu_count, memory_mib) = sizes(desk, Some(build));
    let mut shown = json!({
        "buildID": build.id,
        "status": status(build.status),
        "createdAt": time::text(build.created_at),
        "updatedAt": time::text(build.updated_at),
        "cpuCount": cpu_count,
        "memoryMB": memory_mib,
        "diskSizeMB": desk.config.disk_bytes >> 20,
        "envdVersion": ENVD_VERSION,
    });
    if let Some(finished_at) = build.finished_at {
        shown["finishedAt"] = time::text(finished_at).into();
    }
    shown
}

/// One entry of a build's log.
pub(super) fn entry(entry: &LogEntry) -> Value {
    let mut shown = json!({
        "timestamp": time::text(entry.at()),
        "message": entry.message,
        "level": entry.level.as_str(),
    });
    if let Some(step) = &entry.step {
        shown["step"] = step.as_str().into();
    }
    shown
}

/// Processors and MiB of memory, as said or as the server chooses.
fn sizes(desk: &Desk, build: Option<&Build>) -> (u64, u64) {
    let cpu = build.and_then(|build| build.cpu_count).map(u64::from);
    let memory = build.and_then(|build| build.memory_mib).map(u64::from);
    (
        cpu.unwrap_or_else(|| desk.config.default_cpu_millis.div_ceil(1000)),
        memory.unwrap_or_else(|| desk.config.default_memory_bytes >> 20),
    )
}
