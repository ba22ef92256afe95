//! `volumes[]` of a creation.

use crate::lifecycle::read::{Object, Problems};

/// One volume as the schema has it.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) mount_path: String,
    pub(crate) sub_path: Option<String>,
    pub(crate) read_only: bool,
    /// All backends that were named; exactly one is right.
    pub(crate) backends: Vec<Backend>,
}

/// Where a volume comes from.
#[derive(Debug)]
pub(crate) enum Backend {
    Host { path: String },
    Claim { name: String, create: bool, delete_with_sandbox: bool },
    ObjectStore,
}

impl Volume {
    /// Reads one; `None` when a member is missing, which is then among the problems.
    pub(crate) fn read(volume: &Object<'_>, problems: &mut Problems) -> Option<Self> {
        let mut backends = Vec::new();
        if let Some(host) = volume.object(problems, "host") {
            backends
                .extend(host.required_string(problems, "path").map(|path| Backend::Host { path }));
        }
        if let Some(claim) = volume.object(problems, "pvc") {
            let create = claim.flag(problems, "createIfNotExists").unwrap_or(true);
            let delete_with_sandbox =
                claim.flag(problems, "deleteOnSandboxTermination").unwrap_or(false);
            // Read for their types alone: a folder of this machine has no class and no size.
            claim.string(problems, "storageClass");
            claim.string(problems, "storage");
            claim.strings(problems, "accessModes");
            backends.extend(
                claim.required_string(problems, "claimName").map(|name| Backend::Claim {
                    name,
                    create,
                    delete_with_sandbox,
                }),
            );
        }
        if volume.get("ossfs").is_some() {
            backends.push(Backend::ObjectStore);
        }
        let name = volume.required_string(problems, "name");
        let mount_path = volume.required_string(problems, "mountPath");
        let sub_path = volume.string(problems, "subPath");
        let read_only = volume.flag(problems, "readOnly").unwrap_or(false);
        Some(Self { name: name?, mount_path: mount_path?, sub_path, read_only, backends })
    }
}
