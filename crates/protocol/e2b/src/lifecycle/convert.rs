//! From a body that fits the schema to what the core understands: meaning, limits, refusals.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_control::{Claim, Create};
use atoll_core::{ImageSource, Keep, SandboxSpec, Source};

use super::error::ApiError;
use super::marks::{Marks, OnTimeout};
use super::state::DoorConfig;
use super::wire::{NewSandbox, Version};

pub(crate) mod kruise;
pub(crate) mod mounts;
pub(crate) mod network;

pub(crate) use kruise::Reserve;

/// Lifetimes of sandboxes whose request doesn't say.
const TIMEOUT_V1: Duration = Duration::from_secs(15);
const TIMEOUT_V2: Duration = Duration::from_secs(300);
/// What wakes by traffic lives at least so long.
const WAKE_MIN: Duration = Duration::from_secs(300);
/// Labels and variables of one sandbox, and bytes of each kind in all.
const ITEMS_MAX: usize = 1024;
const ITEMS_BYTES_MAX: usize = 128 * 1024;

/// A creation that is understood, but for what its template is.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The template or pool asked for.
    pub(crate) template: String,
    /// What the caller wants besides.
    pub(crate) options: kruise::Options,
    /// What to keep with the sandbox.
    pub(crate) marks: Marks,
    /// Volumes to show.
    pub(crate) mounts: Vec<mounts::Asked>,
    lifetime: Option<Duration>,
    on_timeout: OnTimeout,
    wake_for: Option<Duration>,
    network: atoll_core::Network,
    metadata: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
    default_cpu_millis: u64,
}

/// Checks a creation.
pub(crate) fn plan(
    config: &DoorConfig,
    new: NewSandbox,
    version: Version,
) -> Result<Plan, ApiError> {
    let mut metadata = new.metadata;
    let options = kruise::take(&mut metadata)?;
    check_items("metadata", &metadata)?;
    check_env(&new.env)?;
    let timeout = lifetime(config, new.timeout_seconds, version)?;
    let on_timeout = match (options.never_timeout, new.auto_pause, new.auto_pause_memory) {
        (true, _, _) if config.allow_no_expiry => OnTimeout::Never,
        (true, _, _) => {
            let key = kruise::key("never-timeout");
            let problem = "sandboxes without an end are not allowed here; ask the operator to \
                           set limits.allow_no_expiry";
            return Err(ApiError::invalid(&key, problem));
        }
        (_, true, Some(false)) if new.auto_resume => {
            let problem = "false can't be combined with autoResume: traffic never starts a \
                           sandbox from its files alone";
            return Err(ApiError::invalid("autoPauseMemory", problem));
        }
        (_, true, Some(false)) => OnTimeout::Pause(Keep::Files),
        (_, true, _) => OnTimeout::Pause(Keep::Memory),
        (_, false, Some(false)) => {
            return Err(ApiError::invalid("autoPauseMemory", "false needs autoPause: true"));
        }
        (_, false, _) => OnTimeout::Kill,
    };
    if options.keep_paused.is_some() && new.auto_pause {
        let key = kruise::key("reserve-paused-sandbox-duration");
        let problem = "only 'forever' can be combined with autoPause: nothing ends a sandbox \
                       that was paused by its timeout but a kill";
        return Err(ApiError::invalid(&key, problem));
    }
    let traffic = network::read(&new.network, new.secure)?;
    let mut wanted = mounts::from_wire(&new.mounts)?;
    wanted.extend(options.mounts.iter().cloned());
    mounts::check_unique(&wanted)?;
    let marks = Marks {
        secure: new.secure,
        public_traffic: traffic.public,
        deny_out: new.network.deny_out,
        mask_host: traffic.mask_host,
        keep_paused: options.keep_paused,
        ..Marks::new(on_timeout)
    };
    Ok(Plan {
        template: new.template,
        marks,
        mounts: wanted,
        lifetime: (on_timeout != OnTimeout::Never).then_some(timeout),
        on_timeout,
        wake_for: new.auto_resume.then(|| timeout.max(WAKE_MIN)),
        network: traffic.network,
        metadata,
        env: new.env,
        default_cpu_millis: config.default_cpu_millis,
        options,
    })
}

impl Plan {
    /// The creation, now that its template is known; `pool` names the warm pool asked for.
    pub(crate) fn create(self, mut spec: SandboxSpec, pool: Option<String>) -> Create {
        if let Some(reference) = self.options.image {
            spec.source = Source::Image(ImageSource { reference, auth: None });
        }
        self.options.cpu.apply(&mut spec.resources, self.default_cpu_millis);
        spec.env.extend(self.env);
        spec.metadata = self.metadata;
        spec.mounts.extend(mounts::named(self.mounts));
        spec.network = self.network;
        spec.wake_for = self.wake_for;
        spec.extensions = self.marks.to_extensions();
        let mut claim = Claim { pool, ..Claim::default() };
        if let Some(wanted) = self.options.create_on_no_stock {
            claim.create_on_no_stock = wanted;
        }
        if let Some(patience) = self.options.claim_patience {
            claim.patience = patience;
        }
        let on_expiry = self.on_timeout.expiry();
        Create { spec, lifetime: self.lifetime, on_expiry, claim }
    }
}

/// How long somebody waits for a sandbox of this `spec` who waits `wait` for one that is ready as
/// soon as it runs.
pub(crate) fn patience(wait: Duration, spec: &SandboxSpec) -> Duration {
    let ready = spec.ready.as_ref().map_or(Duration::ZERO, |ready| ready.within);
    wait.saturating_add(ready)
}

fn lifetime(
    config: &DoorConfig,
    seconds: Option<i64>,
    version: Version,
) -> Result<Duration, ApiError> {
    match (seconds, version) {
        (Some(seconds), _) => timeout(config, seconds),
        (None, Version::V1) => Ok(TIMEOUT_V1.min(config.timeout_max)),
        (None, Version::V2) => Ok(TIMEOUT_V2.min(config.timeout_max)),
    }
}

/// A lifetime that a client asked for.
pub(crate) fn timeout(config: &DoorConfig, seconds: i64) -> Result<Duration, ApiError> {
    let asked = u64::try_from(seconds).map(Duration::from_secs);
    match asked {
        Ok(asked) if !asked.is_zero() && asked <= config.timeout_max => Ok(asked),
        Ok(_) | Err(_) => Err(ApiError::invalid(
            "timeout",
            format!("must be from 1 to {} seconds on this server", config.timeout_max.as_secs()),
        )),
    }
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), ApiError> {
    check_items("envVars", env)?;
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let problem = format!("{name:?} can't be a variable: no empty name, no '=', no NUL");
            return Err(ApiError::invalid("envVars", problem));
        }
    }
    Ok(())
}

fn check_items(field: &str, items: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let bytes: usize = items.iter().map(|(key, value)| key.len() + value.len()).sum();
    if items.len() <= ITEMS_MAX && bytes <= ITEMS_BYTES_MAX {
        return Ok(());
    }
    let problem = format!("at most {ITEMS_MAX} entries and {ITEMS_BYTES_MAX} bytes are kept");
    Err(ApiError::invalid(field, problem))
}
