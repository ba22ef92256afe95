//! What a sandbox is and how its life goes: pure decisions, no input or output.
//!
//! Nothing here knows the time, a random number, a wire format or an operating system. Callers
//! pass in what happened and when; the answers are values. That makes every rule below testable
//! by a table, and lets the real engine and the simulation share it to the letter.

pub mod diagnostic;
pub mod error;
pub mod id;
pub mod lifecycle;
pub mod sandbox;
pub mod snapshot;
pub mod spec;
pub mod time;
pub mod timeline;

pub use diagnostic::Diagnostic;
pub use error::{Error, ErrorKind, Result};
pub use id::{SandboxId, SnapshotId, TenantId};
pub use lifecycle::{
    Action, Aging, Deadline, Desired, Exit, Expiry, Keep, Lifecycle, Observed, Phase, Wish,
};
pub use sandbox::Sandbox;
pub use snapshot::{Snapshot, SnapshotState};
pub use spec::{
    GuestDefaults, ImageSource, Isolation, Mount, MountSource, Network, Platform, ReadyCheck,
    RegistryAuth, Resources, SandboxSpec, Source, TemplateOrigin,
};
pub use time::Timestamp;
pub use timeline::{Entry, Timeline};
