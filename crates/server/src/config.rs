//! Everything an operator can choose, with its default. One TOML file; every key is optional, and
//! a key that isn't here is an error.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;

mod check;

pub use check::ConfigError;

/// The configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address and port; port 0 takes a free one. Default `127.0.0.1:8080`.
    pub listen: SocketAddr,
    /// Where records, images and keys are kept. Default `/var/lib/atoll`.
    pub data_dir: PathBuf,
    /// Host, and port if any, that clients use; default: whatever each request used.
    pub public_host: Option<String>,
    /// Which log lines are written, such as `info` or `atoll_engine=debug,info`. Default `info`.
    pub log: String,
    /// Who may use the server. Empty: one tenant, `default`, with the key in
    /// `data_dir/api-key`. `ATOLL_API_KEY` always opens the tenant `default`.
    pub tenants: Vec<Tenant>,
    /// How much is allowed.
    pub limits: Limits,
    /// What a sandbox gets when its creator doesn't say.
    pub defaults: Defaults,
    /// Where images come from.
    pub images: Images,
    /// What makes sandboxes.
    pub runtime: Runtime,
    /// Sandboxes kept ready before anybody asks.
    pub pool: Vec<Pool>,
    /// The template `code-interpreter`.
    pub code_interpreter: CodeInterpreter,
}

/// Sandboxes kept ready before anybody asks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// What clients call it; E2B clients as a template.
    pub name: String,
    /// The template its sandboxes are made from. Default: the pool's name.
    pub template: Option<String>,
    /// How many to keep ready.
    pub size: usize,
}

/// The template `code-interpreter`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CodeInterpreter {
    /// Build it in the background at the first start. Default true.
    pub build: bool,
    /// Where it is kept; several servers may share one. Folders in it are open to all, so that
    /// this one must not be. Default: in the data folder.
    pub folder: Option<PathBuf>,
}

/// One tenant: what it makes is invisible to every other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Lower-case letters and digits.
    pub name: String,
    /// API keys of this tenant, at least 16 characters each.
    pub keys: Vec<String>,
}

/// How much is allowed.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Shortest lifetime of a sandbox. Default 60.
    pub timeout_seconds_min: u64,
    /// Longest lifetime a creation may ask for. Default 86400.
    pub timeout_seconds_max: u64,
    /// Accept sandboxes that live until they are deleted. Default false.
    pub allow_no_expiry: bool,
    /// How long a creation waits for the sandbox to run before it answers `Pending`. Default 10.
    pub create_wait_seconds: u64,
    /// Sandboxes per tenant. Default 1000.
    pub sandboxes_per_tenant_max: usize,
    /// Snapshots per tenant. Default 200.
    pub snapshots_per_tenant_max: usize,
    /// Sandboxes made at once; more wait. Default 32.
    pub actions_at_once: usize,
    /// Connections at once, tunnels included; more wait to be accepted. Default 4096.
    pub connections_max: usize,
    /// How long a connection may take to send a request's head, or be idle. Default 30.
    pub header_seconds_max: u64,
    /// How long requests may go on after a signal to stop, and then removals. Default 5.
    pub drain_seconds: u64,
}

/// What a sandbox gets when its creator doesn't say.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Defaults {
    /// Thousandths of a core. Default 1000.
    pub cpu_millis: u64,
    /// Memory. Default 2048.
    pub memory_mib: u64,
    /// Processes and threads. Default 4096.
    pub pids: u64,
}

/// Where images come from.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Images {
    /// Names for images: `oci:/folder[:tag]`, `archive:/file.tar[:tag]` or a registry reference.
    pub aliases: BTreeMap<String, String>,
    /// Registries to ask first, by the registry they mirror.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Registries spoken to without TLS; loopback always is.
    pub insecure_registries: Vec<String>,
}

/// What makes sandboxes.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Runtime {
    /// Default `local`.
    pub kind: RuntimeKind,
    /// Launcher of sandboxes that ask for none: `native`, or a name in `oci`. Default `native`.
    pub isolation: String,
    /// OCI runtime programs that sandboxes may be started with. Default `runc` and `crun`.
    pub oci: Vec<String>,
    /// The static `atoll-agent` program. Default: beside the server's own program.
    pub agent: Option<PathBuf>,
    /// Folders of this machine below which clients may mount volumes. Default none.
    pub allowed_host_paths: Vec<PathBuf>,
    /// What sandboxes can reach.
    pub network: Network,
}

/// The kinds of runtime there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuntimeKind {
    /// Linux sandboxes on this machine.
    #[default]
    Local,
    /// Nothing real: for trying out clients.
    Sim,
}

/// What sandboxes can reach.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// `"host"` (the internet through this machine), `"none"`, or `{ namespace = "/path" }`.
    /// Default `"host"`.
    pub uplink: Uplink,
    /// A network of 16 bits that nothing else uses. Default `10.231.0.0`.
    pub subnet: Ipv4Addr,
    /// Resolvers for sandboxes; default: this machine's.
    pub resolvers: Vec<Ipv4Addr>,
    /// Private networks that sandboxes may reach nevertheless, such as `192.168.7.0/24`.
    pub allow: Vec<String>,
}

/// Where a sandbox's packets go.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uplink {
    /// Nowhere.
    None,
    /// To the internet through this machine.
    Host,
    /// Into the network namespace at this path.
    Namespace(String),
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// When it can't be read, has an unknown key, or a value that can't be right.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self =
            toml::from_str(text).map_err(|error| ConfigError::Parse(error.into()))?;
        config.check()?;
        Ok(config)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            data_dir: PathBuf::from("/var/lib/atoll"),
            public_host: None,
            log: "info".to_owned(),
            tenants: Vec::new(),
            limits: Limits::default(),
            defaults: Defaults::default(),
            images: Images::default(),
            runtime: Runtime::default(),
            pool: Vec::new(),
            code_interpreter: CodeInterpreter::default(),
        }
    }
}

impl Default for CodeInterpreter {
    fn default() -> Self {
        Self { build: true, folder: None }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout_seconds_min: 60,
            timeout_seconds_max: 86_400,
            allow_no_expiry: false,
            create_wait_seconds: 10,
            sandboxes_per_tenant_max: 1000,
            snapshots_per_tenant_max: 200,
            actions_at_once: 32,
            connections_max: 4096,
            header_seconds_max: 30,
            drain_seconds: 5,
        }
    }
}

impl Default for Defaults {
    fn default() -> Self {
        Self { cpu_millis: 1000, memory_mib: 2048, pids: 4096 }
    }
}

impl Default for Runtime {
    fn default() -> Self {
        Self {
            kind: RuntimeKind::default(),
            isolation: "native".to_owned(),
            oci: ["runc", "crun", "runsc"].map(str::to_owned).to_vec(),
            agent: None,
            allowed_host_paths: Vec::new(),
            network: Network::default(),
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            uplink: Uplink::Host,
            subnet: Ipv4Addr::new(10, 231, 0, 0),
            resolvers: Vec::new(),
            allow: Vec::new(),
        }
    }
}
