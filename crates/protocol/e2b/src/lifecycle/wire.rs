//! Bodies of requests as the contract has them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::ApiError;
use super::read::Object;

/// Which generation of a route was called; they differ in what is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// `/sandboxes…`
    V1,
    /// `/v2/sandboxes…`
    V2,
}

/// A body of `POST /sandboxes` and `POST /v2/sandboxes`.
#[derive(Debug)]
pub(crate) struct NewSandbox {
    pub(crate) template: String,
    pub(crate) timeout_seconds: Option<i64>,
    pub(crate) auto_pause: bool,
    pub(crate) auto_pause_memory: Option<bool>,
    pub(crate) auto_resume: bool,
    pub(crate) secure: bool,
    pub(crate) network: Network,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) mounts: Vec<VolumeMount>,
    /// Members that ask for what this server doesn't have, and why it hasn't.
    pub(crate) unsupported: Option<(&'static str, &'static str)>,
}

/// Members that no template makes possible here.
const UNSUPPORTED: [(&str, &str); 2] = [
    ("mcp", "there is no MCP gateway here; leave it out and run your servers inside"),
    ("iam", "there is no issuer of workload tokens here; leave it out"),
];

/// A volume and where to show it.
#[derive(Debug)]
pub(crate) struct VolumeMount {
    pub(crate) name: String,
    pub(crate) path: String,
}

/// What traffic may pass, in and out.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) internet: Option<bool>,
    pub(crate) public_traffic: Option<bool>,
    pub(crate) mask_host: Option<String>,
    pub(crate) allow_out: Vec<String>,
    pub(crate) deny_out: Vec<String>,
    /// Paths of other members that are set.
    pub(crate) others: Vec<String>,
}

/// Members of a network configuration that only an egress engine could keep.
const EGRESS_MEMBERS: [&str; 3] = ["dnsServers", "egressProxy", "rules"];

impl NewSandbox {
    pub(crate) fn read(body: &Value, version: Version) -> Result<Self, ApiError> {
        let body = Object::body(body)?;
        let auto_resume = body.object("autoResume")?;
        let auto_resume = auto_resume.map(|object| object.flag("enabled")).transpose()?.flatten();
        let mut network = match body.object("network")? {
            Some(object) => Network::read(&object)?,
            None => Network::default(),
        };
        network.internet = body.flag("allow_internet_access")?;
        Ok(Self {
            template: body.need_text("templateID")?.to_owned(),
            timeout_seconds: body.integer("timeout")?,
            auto_pause: body.flag("autoPause")?.unwrap_or(false),
            auto_pause_memory: body.flag("autoPauseMemory")?,
            auto_resume: auto_resume.unwrap_or(false),
            secure: version == Version::V2 || body.flag("secure")?.unwrap_or(true),
            network,
            metadata: body.map("metadata")?.unwrap_or_default(),
            env: body.map("envVars")?.unwrap_or_default(),
            mounts: mounts(&body)?,
            unsupported: UNSUPPORTED.into_iter().find(|(name, _)| body.get(name).is_some()),
        })
    }
}

fn mounts(body: &Object<'_>) -> Result<Vec<VolumeMount>, ApiError> {
    let items = body.array("volumeMounts")?.iter().enumerate();
    items
        .map(|(index, item)| {
            let item = Object::at(&format!("volumeMounts[{index}]"), item)?;
            let (name, path) = (item.need_text("name")?, item.need_text("path")?);
            Ok(VolumeMount { name: name.to_owned(), path: path.to_owned() })
        })
        .collect()
}

impl Network {
    fn read(object: &Object<'_>) -> Result<Self, ApiError> {
        let mut network = Self::egress(object)?;
        network.public_traffic = object.flag("allowPublicTraffic")?;
        network.mask_host = object.text("maskRequestHost")?.map(str::to_owned);
        if object.says_something("httpsPorts") {
            network.others.push(object.path("httpsPorts"));
        }
        Ok(network)
    }

    /// A body of `PUT /sandboxes/{id}/network`.
    pub(crate) fn read_update(body: &Value) -> Result<Self, ApiError> {
        let body = Object::body(body)?;
        let internet = body.flag("allow_internet_access")?;
        Ok(Self { internet, ..Self::egress(&body)? })
    }

    fn egress(object: &Object<'_>) -> Result<Self, ApiError> {
        let set = EGRESS_MEMBERS.into_iter().filter(|name| object.says_something(name));
        Ok(Self {
            allow_out: object.texts("allowOut")?,
            deny_out: object.texts("denyOut")?,
            others: set.map(|name| object.path(name)).collect(),
            ..Self::default()
        })
    }
}

/// A body of `…/connect`, `…/resume` and `…/fork`.
#[derive(Debug, Default)]
pub(crate) struct Continue {
    pub(crate) timeout_seconds: Option<i64>,
    pub(crate) memory: Option<bool>,
    pub(crate) auto_pause: Option<bool>,
    pub(crate) count: Option<i64>,
}

impl Continue {
    pub(crate) fn read(body: &Value) -> Result<Self, ApiError> {
        let body = Object::body(body)?;
        Ok(Self {
            timeout_seconds: body.integer("timeout")?,
            memory: body.flag("memory")?,
            auto_pause: body.flag("autoPause")?,
            count: body.integer("count")?,
        })
    }
}

/// A body of `…/pause`.
#[derive(Debug)]
pub(crate) struct Pause {
    pub(crate) memory: bool,
    pub(crate) require_healthy_guest: bool,
}

impl Pause {
    pub(crate) fn read(body: &Value) -> Result<Self, ApiError> {
        let body = Object::body(body)?;
        Ok(Self {
            memory: body.flag("memory")?.unwrap_or(true),
            require_healthy_guest: body.flag("requireHealthyGuest")?.unwrap_or(false),
        })
    }
}

/// A body of `POST /sandboxes/{id}/snapshots`.
#[derive(Debug)]
pub(crate) struct NewSnapshot {
    pub(crate) name: Option<String>,
    pub(crate) memory: Option<bool>,
}

impl NewSnapshot {
    pub(crate) fn read(body: &Value) -> Result<Self, ApiError> {
        let body = Object::body(body)?;
        Ok(Self { name: body.text("name")?.map(str::to_owned), memory: body.flag("memory")? })
    }
}
