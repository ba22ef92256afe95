//! What a user asked for: already checked, free of any wire format.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::id::SnapshotId;

/// Everything that makes one sandbox what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSpec {
    /// Where its files come from.
    pub source: Source,
    /// Program and arguments run beside the agent; its end is the sandbox's end. Empty: the
    /// image's own.
    pub entrypoint: Vec<String>,
    /// Variables of the entrypoint and of every command.
    pub env: BTreeMap<String, String>,
    /// Upper bounds on what it may use.
    pub resources: Resources,
    /// The user's labels, for filters.
    pub metadata: BTreeMap<String, String>,
    /// Labels that only one door understands and wants back unchanged.
    pub extensions: BTreeMap<String, String>,
    /// Echoed when it was asked for.
    pub platform: Option<Platform>,
    /// How strongly it is walled in.
    pub isolation: Isolation,
    /// Extra folders.
    pub mounts: Vec<Mount>,
    /// What it may reach.
    pub network: Network,
    /// Who and where commands are when they don't say.
    pub guest: GuestDefaults,
    /// What must succeed inside before it counts as running.
    pub ready: Option<ReadyCheck>,
    /// A paused sandbox wakes when somebody connects to it, and then lives at least this long.
    pub wake_for: Option<Duration>,
    /// The template it was made from, if any.
    pub template: Option<TemplateOrigin>,
}

impl SandboxSpec {
    /// A plain sandbox: nothing but its files.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            entrypoint: Vec::new(),
            env: BTreeMap::new(),
            resources: Resources::default(),
            metadata: BTreeMap::new(),
            extensions: BTreeMap::new(),
            platform: None,
            isolation: Isolation::Default,
            mounts: Vec::new(),
            network: Network::default(),
            guest: GuestDefaults::default(),
            ready: None,
            wake_for: None,
            template: None,
        }
    }

    /// A sandbox made from this can become `wanted` by telling its agent alone: nothing that was
    /// settled when it was made differs, and none of its variables would have to be taken back.
    pub fn fits(&self, wanted: &Self) -> bool {
        self.source == wanted.source
            && self.entrypoint == wanted.entrypoint
            && self.resources == wanted.resources
            && self.isolation == wanted.isolation
            && self.mounts == wanted.mounts
            && self.network == wanted.network
            && self.ready == wanted.ready
            && self.env.iter().all(|(name, value)| wanted.env.get(name) == Some(value))
    }
}

/// Who and where commands are when they don't say; `None` leaves it to the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestDefaults {
    /// Account name. One that the image lacks is made when the sandbox starts.
    pub user: Option<String>,
    /// Absolute path.
    pub workdir: Option<String>,
}

/// A command that is tried again and again until it succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyCheck {
    /// For the shell inside.
    pub command: String,
    /// Wait between tries.
    pub every: Duration,
    /// Patience in all; then the sandbox has failed.
    pub within: Duration,
}

/// Which template a sandbox was made from, as its maker knew it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateOrigin {
    /// The template's lasting id.
    pub id: String,
    /// The name it was asked for by.
    pub alias: Option<String>,
    /// Which build of it.
    pub build: String,
}

/// Where a sandbox's files come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An image by name.
    Image(ImageSource),
    /// The files of an earlier sandbox.
    Snapshot(SnapshotId),
}

/// An image by name, with what its registry asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSource {
    /// Registry reference, or the name of a built-in or configured image.
    pub reference: String,
    /// Credentials of a private registry; kept only until the image is here.
    pub auth: Option<RegistryAuth>,
}

/// User and password of a registry. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryAuth {
    /// User name.
    pub username: String,
    /// Password or token.
    pub password: String,
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryAuth").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Upper bounds; `None` leaves the machine's configured default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Thousandths of a core.
    pub cpu_millis: Option<u64>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
}

/// Operating system and processor a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Such as `linux`.
    pub os: String,
    /// Such as `amd64`.
    pub arch: String,
}

/// Which launcher walls the sandbox in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Whatever the installation uses by default.
    #[default]
    Default,
    /// Our own launcher.
    Native,
    /// An OCI runtime program by name, such as `runc`.
    Oci(String),
}

/// A folder from outside, visible at `target` inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Unique name within the sandbox.
    pub name: String,
    /// Where it comes from.
    pub source: MountSource,
    /// Absolute path inside.
    pub target: String,
    /// Folder within the source, relative, without `..`.
    pub sub_path: Option<String>,
    /// Refuse writes.
    pub read_only: bool,
}

/// Where a mounted folder comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSource {
    /// A folder of the host, allowed by the operator.
    Host(String),
    /// A named volume that outlives sandboxes.
    Volume {
        /// Name, unique for its tenant.
        name: String,
        /// Make it when it isn't there.
        create: bool,
        /// Remove it together with the sandbox.
        delete_with_sandbox: bool,
    },
}

/// What a sandbox may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// The internet, but neither the host, private ranges nor other sandboxes.
    #[default]
    Internet,
    /// Nothing but itself.
    Isolated,
}

#[cfg(test)]
mod tests {
    use super::{GuestDefaults, ImageSource, Isolation, Network, SandboxSpec, Source};

    fn spec() -> SandboxSpec {
        let image = ImageSource { reference: "base".to_owned(), auth: None };
        SandboxSpec::new(Source::Image(image))
    }

    fn with(change: impl FnOnce(&mut SandboxSpec)) -> SandboxSpec {
        let mut spec = spec();
        change(&mut spec);
        spec
    }

    #[test]
    fn what_an_agent_can_be_told_fits_and_what_was_built_in_does_not() {
        let variable = |spec: &mut SandboxSpec, value: &str| {
            spec.env.insert("A".to_owned(), value.to_owned());
        };
        let user = GuestDefaults { user: Some("me".to_owned()), workdir: None };
        for (fits, stock, wanted) in [
            (true, spec(), spec()),
            (true, spec(), with(|s| variable(s, "1"))),
            (true, spec(), with(|s| s.guest = user)),
            (true, spec(), with(|s| drop(s.metadata.insert("k".to_owned(), "v".to_owned())))),
            (true, with(|s| variable(s, "1")), with(|s| variable(s, "1"))),
            (false, with(|s| variable(s, "1")), spec()),
            (false, with(|s| variable(s, "1")), with(|s| variable(s, "2"))),
            (false, spec(), with(|s| s.entrypoint.push("x".to_owned()))),
            (false, spec(), with(|s| s.resources.pids = Some(9))),
            (false, spec(), with(|s| s.isolation = Isolation::Native)),
            (false, spec(), with(|s| s.network = Network::Isolated)),
        ] {
            assert_eq!(stock.fits(&wanted), fits, "{stock:?} for {wanted:?}");
        }
    }
}
