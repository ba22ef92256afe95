//! Between the core's types and what is on disk. Every match is complete, so that a new case of
//! the core can't be forgotten here.

use std::time::Duration;

use atoll_control::Pool;
use atoll_core::lifecycle::Parts;
use atoll_core::{self as core, Error, Lifecycle, SandboxId, SnapshotId, TenantId, Timestamp};

use crate::record::{
    Deadline, Desired, Diagnostic, Expiry, Isolation, Keep, Life, Line, Mount, MountSource,
    Network, Phase, Platform, PoolRecord, Ready, SandboxRecord, SnapshotRecord, SnapshotState,
    Source, Spec, Template,
};

/// Two enums with the same cases, both ways.
macro_rules! same_cases {
    ($ours:ident = $theirs:ty { $($case:ident),+ }) => {
        impl From<$theirs> for $ours {
            fn from(value: $theirs) -> Self {
                match value { $(<$theirs>::$case => Self::$case),+ }
            }
        }
        impl From<$ours> for $theirs {
            fn from(value: $ours) -> Self {
                match value { $($ours::$case => Self::$case),+ }
            }
        }
    };
}

same_cases!(Desired = core::Desired { Running, Paused, Gone });
same_cases!(
    Phase = core::Phase {
        Queued,
        Starting,
        Running,
        Pausing,
        Paused,
        Resuming,
        Stopping,
        Ended,
        Failed,
        Gone
    }
);
same_cases!(Keep = core::Keep { Memory, Files });
same_cases!(Network = core::Network { Internet, Isolated });

impl From<core::Expiry> for Expiry {
    fn from(expiry: core::Expiry) -> Self {
        match expiry {
            core::Expiry::Kill => Self::Kill,
            core::Expiry::Pause(core::Keep::Memory) => Self::Pause,
            core::Expiry::Pause(core::Keep::Files) => Self::PauseFiles,
        }
    }
}

impl From<Expiry> for core::Expiry {
    fn from(expiry: Expiry) -> Self {
        match expiry {
            Expiry::Kill => Self::Kill,
            Expiry::Pause => Self::Pause(core::Keep::Memory),
            Expiry::PauseFiles => Self::Pause(core::Keep::Files),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl From<&core::Sandbox> for SandboxRecord {
    fn from(sandbox: &core::Sandbox) -> Self {
        Self {
            id: sandbox.id.to_string(),
            tenant: sandbox.tenant.to_string(),
            spec: Spec::from(&sandbox.spec),
            created_at: sandbox.created_at.as_micros(),
            access_token: sandbox.access_token.clone(),
            stock_of: sandbox.stock_of.clone(),
            life: Life::from(sandbox.life.to_parts()),
        }
    }
}

impl TryFrom<SandboxRecord> for core::Sandbox {
    type Error = Error;

    fn try_from(record: SandboxRecord) -> Result<Self, Error> {
        Ok(Self {
            id: SandboxId::parse(&record.id)?,
            tenant: TenantId::parse(&record.tenant)?,
            spec: record.spec.try_into()?,
            created_at: Timestamp::from_micros(record.created_at),
            access_token: record.access_token,
            stock_of: record.stock_of,
            life: Lifecycle::from_parts(record.life.into()),
        })
    }
}

impl From<&core::SandboxSpec> for Spec {
    fn from(spec: &core::SandboxSpec) -> Self {
        Self {
            source: match &spec.source {
                // Credentials are never written.
                core::Source::Image(image) => Source::Image(image.reference.clone()),
                core::Source::Snapshot(id) => Source::Snapshot(id.to_string()),
            },
            entrypoint: spec.entrypoint.clone(),
            env: spec.env.clone(),
            cpu_millis: spec.resources.cpu_millis,
            memory_bytes: spec.resources.memory_bytes,
            pids: spec.resources.pids,
            metadata: spec.metadata.clone(),
            extensions: spec.extensions.clone(),
            platform: spec
                .platform
                .as_ref()
                .map(|p| Platform { os: p.os.clone(), arch: p.arch.clone() }),
            isolation: match &spec.isolation {
                core::Isolation::Default => Isolation::Default,
                core::Isolation::Native => Isolation::Native,
                core::Isolation::Oci(name) => Isolation::Oci(name.clone()),
            },
            mounts: spec.mounts.iter().map(Mount::from).collect(),
            network: spec.network.into(),
            user: spec.guest.user.clone(),
            workdir: spec.guest.workdir.clone(),
            ready: spec.ready.as_ref().map(|ready| Ready {
                command: ready.command.clone(),
                every_micros: micros(ready.every),
                within_micros: micros(ready.within),
            }),
            wake_for_micros: spec.wake_for.map(micros),
            template: spec.template.as_ref().map(|template| Template {
                id: template.id.clone(),
                alias: template.alias.clone(),
                build: template.build.clone(),
            }),
        }
    }
}

impl TryFrom<Spec> for core::SandboxSpec {
    type Error = Error;

    fn try_from(spec: Spec) -> Result<Self, Error> {
        Ok(Self {
            source: match spec.source {
                Source::Image(reference) => {
                    core::Source::Image(core::ImageSource { reference, auth: None })
                }
                Source::Snapshot(id) => core::Source::Snapshot(SnapshotId::parse(&id)?),
            },
            entrypoint: spec.entrypoint,
            env: spec.env,
            resources: core::Resources {
                cpu_millis: spec.cpu_millis,
                memory_bytes: spec.memory_bytes,
                pids: spec.pids,
            },
            metadata: spec.metadata,
            extensions: spec.extensions,
            platform: spec.platform.map(|p| core::Platform { os: p.os, arch: p.arch }),
            isolation: match spec.isolation {
                Isolation::Default => core::Isolation::Default,
                Isolation::Native => core::Isolation::Native,
                Isolation::Oci(name) => core::Isolation::Oci(name),
            },
            mounts: spec.mounts.into_iter().map(core::Mount::from).collect(),
            network: spec.network.into(),
            guest: core::GuestDefaults { user: spec.user, workdir: spec.workdir },
            ready: spec.ready.map(|ready| core::ReadyCheck {
                command: ready.command,
                every: Duration::from_micros(ready.every_micros),
                within: Duration::from_micros(ready.within_micros),
            }),
            wake_for: spec.wake_for_micros.map(Duration::from_micros),
            template: spec.template.map(|template| core::TemplateOrigin {
                id: template.id,
                alias: template.alias,
                build: template.build,
            }),
        })
    }
}

impl From<&core::Mount> for Mount {
    fn from(mount: &core::Mount) -> Self {
        Self {
            name: mount.name.clone(),
            source: match mount.source.clone() {
                core::MountSource::Host(path) => MountSource::Host(path),
                core::MountSource::Volume { name, create, delete_with_sandbox } => {
                    MountSource::Volume { name, create, delete_with_sandbox }
                }
            },
            target: mount.target.clone(),
            sub_path: mount.sub_path.clone(),
            read_only: mount.read_only,
        }
    }
}

impl From<Mount> for core::Mount {
    fn from(mount: Mount) -> Self {
        Self {
            name: mount.name,
            source: match mount.source {
                MountSource::Host(path) => core::MountSource::Host(path),
                MountSource::Volume { name, create, delete_with_sandbox } => {
                    core::MountSource::Volume { name, create, delete_with_sandbox }
                }
            },
            target: mount.target,
            sub_path: mount.sub_path,
            read_only: mount.read_only,
        }
    }
}

impl From<Parts> for Life {
    fn from(parts: Parts) -> Self {
        let line = |entry: core::Entry| Line {
            at: entry.at.as_micros(),
            phase: entry.phase.into(),
            message: entry.message,
        };
        Self {
            desired: parts.desired.into(),
            phase: parts.phase.into(),
            keep: parts.keep.into(),
            holds: parts.holds,
            generation: parts.generation,
            deadline: parts
                .deadline
                .map(|d| Deadline { at: d.at.as_micros(), then: d.then.into() }),
            expiry: parts.expiry.map(Expiry::from),
            lifetime_micros: parts.lifetime.map(micros),
            rests: parts.rests,
            changed_at: parts.changed_at.as_micros(),
            attempts: parts.attempts,
            retry_at: parts.retry_at.map(Timestamp::as_micros),
            diagnostic: parts.diagnostic.map(|d| Diagnostic {
                reason: d.reason,
                message: d.message,
                recommendation: d.recommendation,
            }),
            timeline: parts.timeline.into_iter().map(line).collect(),
        }
    }
}

impl From<Life> for Parts {
    fn from(life: Life) -> Self {
        let entry = |line: Line| core::Entry {
            at: Timestamp::from_micros(line.at),
            phase: line.phase.into(),
            message: line.message,
        };
        // Older records have only the deadline.
        let expiry = life.expiry.or(life.deadline.as_ref().map(|d| d.then)).map(Into::into);
        let changed_at = Timestamp::from_micros(life.changed_at);
        let left = life.deadline.as_ref().map(|d| changed_at.until(Timestamp::from_micros(d.at)));
        let lifetime = life.lifetime_micros.map(Duration::from_micros);
        let lifetime = if life.rests { lifetime } else { lifetime.or(left) };
        Self {
            desired: life.desired.into(),
            phase: life.phase.into(),
            keep: life.keep.into(),
            holds: life.holds,
            generation: life.generation,
            deadline: life
                .deadline
                .map(|d| core::Deadline { at: Timestamp::from_micros(d.at), then: d.then.into() }),
            expiry,
            lifetime,
            rests: life.rests,
            changed_at,
            attempts: life.attempts,
            retry_at: life.retry_at.map(Timestamp::from_micros),
            diagnostic: life.diagnostic.map(|d| core::Diagnostic {
                reason: d.reason,
                message: d.message,
                recommendation: d.recommendation,
            }),
            timeline: life.timeline.into_iter().map(entry).collect(),
        }
    }
}

impl From<&Pool> for PoolRecord {
    fn from(pool: &Pool) -> Self {
        Self { name: pool.name.clone(), spec: Spec::from(&pool.spec), size: pool.size }
    }
}

impl TryFrom<PoolRecord> for Pool {
    type Error = Error;

    fn try_from(record: PoolRecord) -> Result<Self, Error> {
        Ok(Self { name: record.name, spec: record.spec.try_into()?, size: record.size })
    }
}

impl From<&core::Snapshot> for SnapshotRecord {
    fn from(snapshot: &core::Snapshot) -> Self {
        Self {
            id: snapshot.id.to_string(),
            tenant: snapshot.tenant.to_string(),
            sandbox: snapshot.sandbox.to_string(),
            name: snapshot.name.clone(),
            hidden: snapshot.hidden,
            state: match &snapshot.state {
                core::SnapshotState::Creating => SnapshotState::Creating,
                core::SnapshotState::Ready => SnapshotState::Ready,
                core::SnapshotState::Failed(why) => SnapshotState::Failed(why.clone()),
                core::SnapshotState::Deleting => SnapshotState::Deleting,
            },
            changed_at: snapshot.changed_at.as_micros(),
            created_at: snapshot.created_at.as_micros(),
        }
    }
}

impl TryFrom<SnapshotRecord> for core::Snapshot {
    type Error = Error;

    fn try_from(record: SnapshotRecord) -> Result<Self, Error> {
        Ok(Self {
            id: SnapshotId::parse(&record.id)?,
            tenant: TenantId::parse(&record.tenant)?,
            sandbox: SandboxId::parse(&record.sandbox)?,
            name: record.name,
            hidden: record.hidden,
            state: match record.state {
                SnapshotState::Creating => core::SnapshotState::Creating,
                SnapshotState::Ready => core::SnapshotState::Ready,
                SnapshotState::Failed(why) => core::SnapshotState::Failed(why),
                SnapshotState::Deleting => core::SnapshotState::Deleting,
            },
            changed_at: Timestamp::from_micros(record.changed_at),
            created_at: Timestamp::from_micros(record.created_at),
        })
    }
}
