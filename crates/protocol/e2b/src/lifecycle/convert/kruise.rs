//! Options that clients of OpenKruise Agents hide in metadata.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_core::Resources;
use serde_json::Value;

use super::mounts::{self, Asked};
use crate::lifecycle::error::ApiError;
use crate::lifecycle::read::Object;

const PREFIX: &str = "e2b.agents.kruise.io/";
/// Longest patience that a caller may ask for; longer only holds a connection.
const PATIENCE_SECONDS_MAX: u64 = 3600;
/// Largest share of a machine that makes sense, in thousandths of a core.
const CPU_MILLIS_MAX: u64 = 1_024_000;

/// The full name of an option.
pub(crate) fn key(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// What becomes of a sandbox that could not be started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reserve {
    /// It is removed.
    #[default]
    Never,
    /// It stays until it is killed.
    Forever,
    /// It stays a while.
    For(Duration),
}

/// Bounds on processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpu {
    request_millis: Option<u64>,
    limit_millis: Option<u64>,
}

impl Cpu {
    /// A limit replaces the template's; a request raises it when that is lower.
    pub(crate) fn apply(self, resources: &mut Resources, default_millis: u64) {
        let present = resources.cpu_millis.unwrap_or(default_millis);
        let raised = self.request_millis.filter(|request| *request > present);
        resources.cpu_millis = self.limit_millis.or(raised).or(resources.cpu_millis);
    }
}

/// All options.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) claim_patience: Option<Duration>,
    pub(crate) ready_patience: Option<Duration>,
    pub(crate) create_on_no_stock: Option<bool>,
    pub(crate) image: Option<String>,
    pub(crate) cpu: Cpu,
    pub(crate) mounts: Vec<Asked>,
    pub(crate) reserve_failed: Reserve,
    pub(crate) keep_paused: Option<Duration>,
    pub(crate) never_timeout: bool,
}

/// Takes the options out of `metadata`; labels among them stay in it under their own names.
pub(crate) fn take(metadata: &mut BTreeMap<String, String>) -> Result<Options, ApiError> {
    let mut found = BTreeMap::new();
    metadata.retain(|key, value| match key.strip_prefix(PREFIX) {
        Some(name) => {
            found.insert(name.to_owned(), std::mem::take(value));
            false
        }
        None => true,
    });
    let mut options = Options::default();
    let mut volume = SingleVolume::default();
    for (name, value) in found {
        if let Some(label) = name.strip_prefix("label:") {
            metadata.insert(label.to_owned(), value);
        } else if !volume.read(&name, &value) {
            read(&mut options, &name, &value)?;
        }
    }
    options.mounts.extend(volume.mount()?);
    let cpu = options.cpu;
    if cpu.limit_millis.is_some_and(|limit| cpu.request_millis.is_some_and(|r| r > limit)) {
        return Err(ApiError::invalid(&key("cpu-request"), "must not be above cpu-limit"));
    }
    Ok(options)
}

fn read(options: &mut Options, name: &str, value: &str) -> Result<(), ApiError> {
    let wrong = |problem: &str| ApiError::invalid(&key(name), problem);
    match name {
        "claim-timeout-seconds" => options.claim_patience = Some(patience(name, value)?),
        "wait-ready-timeout-seconds" => options.ready_patience = Some(patience(name, value)?),
        "create-on-no-stock" => options.create_on_no_stock = Some(flag(name, value)?),
        "never-timeout" => options.never_timeout = flag(name, value)?,
        // There is nothing to skip: the agent inside needs no initialisation. The sandbox has a
        // token and asks for it all the same; where the original skips, nobody sets one.
        "skip-init-runtime" => drop(flag(name, value)?),
        "image" => options.image = Some(image(value)?),
        "cpu-request" => options.cpu.request_millis = Some(cpu_millis(name, value)?),
        "cpu-limit" => options.cpu.limit_millis = Some(cpu_millis(name, value)?),
        "csi-volume-config" => options.mounts.extend(volume_config(value)?),
        "reserve-failed-sandbox" => {
            if flag(name, value)? && options.reserve_failed == Reserve::Never {
                options.reserve_failed = Reserve::Forever;
            }
        }
        "reserve-failed-sandbox-for" => {
            options.reserve_failed = match value {
                "never" => Reserve::Never,
                "forever" => Reserve::Forever,
                text => Reserve::For(duration(text).ok_or_else(|| {
                    wrong("write never, forever or a duration such as 90s, 10m or 1h30m")
                })?),
            };
        }
        "reserve-paused-sandbox-duration" => options.keep_paused = keep_paused(&key(name), value)?,
        "return-sandbox-ip" => {
            if flag(name, value)? {
                return Err(wrong(
                    "a sandbox has no address that can be reached from outside; reach its ports \
                     through this server",
                ));
            }
        }
        "sandbox-name" | "sandbox-generate-name" => {
            return Err(wrong("this server names sandboxes itself; use metadata to find yours"));
        }
        _ => return Err(wrong("this server has no such option; remove it")),
    }
    Ok(())
}

/// How long a paused sandbox is kept, as `field` says; `None`: until it is killed.
pub(crate) fn keep_paused(field: &str, value: &str) -> Result<Option<Duration>, ApiError> {
    if value == "forever" {
        return Ok(None);
    }
    let problem = "write forever or a duration such as 10m or 24h";
    duration(value).map(Some).ok_or_else(|| ApiError::invalid(field, problem))
}

fn flag(name: &str, value: &str) -> Result<bool, ApiError> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(ApiError::invalid(&key(name), "write true or false")),
    }
}

fn patience(name: &str, value: &str) -> Result<Duration, ApiError> {
    let seconds = value.trim().parse().ok().filter(|s| (1..=PATIENCE_SECONDS_MAX).contains(s));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        let problem = format!("write a whole number of seconds from 1 to {PATIENCE_SECONDS_MAX}");
        ApiError::invalid(&key(name), problem)
    })
}

fn image(value: &str) -> Result<String, ApiError> {
    let fits = !value.is_empty() && value.len() <= 512;
    if fits && !value.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Ok(value.to_owned());
    }
    Err(ApiError::invalid(&key("image"), "write an image name of 1 to 512 characters"))
}

/// Cores as Kubernetes writes them: `2`, `0.5` or `500m`.
fn cpu_millis(name: &str, value: &str) -> Result<u64, ApiError> {
    let thousandths = match value.strip_suffix('m') {
        Some(digits) => digits.parse().ok(),
        None => {
            let (whole, part) = value.split_once('.').unwrap_or((value, ""));
            let part = (part.len() <= 3).then(|| format!("{part:0<3}"));
            let whole = whole.parse::<u64>().ok().and_then(|cores| cores.checked_mul(1000));
            whole.zip(part.and_then(|p| p.parse::<u64>().ok())).map(|(whole, part)| whole + part)
        }
    };
    thousandths
        .filter(|millis| (1..=CPU_MILLIS_MAX).contains(millis))
        .ok_or_else(|| ApiError::invalid(&key(name), "write cores such as 2, 0.5 or 500m"))
}

/// `90s`, `1h30m`, `250ms`: numbers with units, largest first or not.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let part = match &rest[..end] {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number.checked_mul(60)?),
            "h" => Duration::from_secs(number.checked_mul(3600)?),
            _ => return None,
        };
        total = total.checked_add(part)?;
        rest = &rest[end..];
    }
    (!total.is_zero()).then_some(total)
}

/// The three keys that name one volume.
#[derive(Default)]
struct SingleVolume {
    name: Option<String>,
    path: Option<String>,
    sub_path: Option<String>,
}

impl SingleVolume {
    fn read(&mut self, name: &str, value: &str) -> bool {
        let member = match name {
            "csi-volume-name" => &mut self.name,
            "csi-mount-point" => &mut self.path,
            "csi-subpath" => &mut self.sub_path,
            _ => return false,
        };
        *member = Some(value.to_owned());
        true
    }

    fn mount(self) -> Result<Option<Asked>, ApiError> {
        match (self.name, self.path) {
            (Some(name), Some(path)) => {
                let sub_path = self.sub_path.as_deref();
                mounts::named_volume(&key("csi-volume-name"), &name, &path, sub_path, false)
                    .map(Some)
            }
            (None, None) if self.sub_path.is_none() => Ok(None),
            (Some(_), None) => {
                Err(ApiError::invalid(&key("csi-mount-point"), "is required with csi-volume-name"))
            }
            (None, _) => {
                Err(ApiError::invalid(&key("csi-volume-name"), "is required with csi-mount-point"))
            }
        }
    }
}

fn volume_config(value: &str) -> Result<Vec<Asked>, ApiError> {
    let field = key("csi-volume-config");
    let wrong = || ApiError::invalid(&field, "write a JSON list of {pvName, mountPath} objects");
    let parsed: Value = serde_json::from_str(value).map_err(|_| wrong())?;
    let items = parsed.as_array().ok_or_else(wrong)?.iter().enumerate();
    items
        .map(|(index, item)| {
            let field = format!("{field}[{index}]");
            let item = Object::at(&field, item)?;
            if item.says_something("attributes") {
                let reason = "volumes here are folders without attributes";
                return Err(ApiError::unsupported(&item.path("attributes"), reason));
            }
            let (volume, path) = (item.need_text("pvName")?, item.need_text("mountPath")?);
            let read_only = item.flag("readOnly")?.unwrap_or(false);
            mounts::named_volume(&field, volume, path, item.text("subPath")?, read_only)
        })
        .collect()
}
