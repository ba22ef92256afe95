//! Records and requests to test with.

use atoll_control::{Create, Pool};
use atoll_core::{
    ImageSource, Lifecycle, Sandbox, SandboxId, SandboxSpec, Snapshot, SnapshotId, SnapshotState,
    Source, TenantId, Timestamp,
};

/// The time at which samples were made.
pub const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// A tenant by name.
///
/// # Panics
/// When the name is no id.
pub fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).expect("a tenant's name is an id")
}

/// A plain sandbox of `image`.
pub fn spec(image: &str) -> SandboxSpec {
    SandboxSpec::new(Source::Image(ImageSource { reference: image.to_owned(), auth: None }))
}

/// A request for a plain sandbox that lives until it is removed.
pub fn create() -> Create {
    Create::new(spec("any"))
}

/// A warm pool of plain sandboxes.
pub fn pool(name: &str, size: usize) -> Pool {
    Pool { name: name.to_owned(), spec: spec("any"), size }
}

/// A sandbox just asked for.
///
/// # Panics
/// When a name is no id.
pub fn sandbox(id: &str, owner: &str) -> Sandbox {
    Sandbox {
        id: SandboxId::parse(id).expect("a sandbox's name is an id"),
        tenant: tenant(owner),
        spec: spec("any"),
        created_at: NOW,
        access_token: "00112233445566778899aabbccddeeff".to_owned(),
        stock_of: None,
        life: Lifecycle::new(NOW, None),
    }
}

/// A snapshot that is ready.
///
/// # Panics
/// When a name is no id.
pub fn snapshot(id: &str, of: &str, owner: &str) -> Snapshot {
    Snapshot {
        id: SnapshotId::parse(id).expect("a snapshot's name is an id"),
        tenant: tenant(owner),
        sandbox: SandboxId::parse(of).expect("a sandbox's name is an id"),
        name: None,
        hidden: false,
        state: SnapshotState::Ready,
        changed_at: NOW,
        created_at: NOW,
    }
}
