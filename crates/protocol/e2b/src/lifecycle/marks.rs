//! What this door keeps with a sandbox beyond the core's own words.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_core::{Expiry, Keep, Sandbox};

const ON_TIMEOUT: &str = "e2b.on-timeout";
const SECURE: &str = "e2b.secure";
const PUBLIC_TRAFFIC: &str = "e2b.public-traffic";
const DENY_OUT: &str = "e2b.deny-out";
const MASK_HOST: &str = "e2b.mask-host";
const KEEP_PAUSED: &str = "e2b.keep-paused-seconds";
const IDEMPOTENCY_KEY: &str = "e2b.idempotency-key";
const IDEMPOTENCY_BODY: &str = "e2b.idempotency-body";

/// Marks that belong to one creation: a copy must not answer to its original's key.
pub(crate) const OF_ONE_CREATION: [&str; 2] = [IDEMPOTENCY_KEY, IDEMPOTENCY_BODY];

/// What happens when a sandbox's time is up; remembered, because an expiry clears the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnTimeout {
    Kill,
    Pause(Keep),
    /// Its time is never up.
    Never,
}

impl OnTimeout {
    /// In the core's words.
    pub(crate) fn expiry(self) -> Expiry {
        match self {
            Self::Kill | Self::Never => Expiry::Kill,
            Self::Pause(keep) => Expiry::Pause(keep),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Pause(Keep::Memory) => "pause",
            Self::Pause(Keep::Files) => "pause-files",
            Self::Never => "never",
        }
    }
}

/// All marks of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// `None` for a sandbox that another door made.
    pub(crate) on_timeout: Option<OnTimeout>,
    /// The in-sandbox API asks for its token; only clients of old may choose otherwise.
    pub(crate) secure: bool,
    /// Its ports are open to anybody who knows its id. Only this door's contract promises that;
    /// who made a sandbox through another door, or builds a template in it, never said so.
    pub(crate) public_traffic: bool,
    /// It was cut off by this list of addresses.
    pub(crate) deny_out: Vec<String>,
    /// What services inside see as `Host`.
    pub(crate) mask_host: Option<String>,
    /// How long it is kept once it is paused by request; `None`: until it is killed.
    pub(crate) keep_paused: Option<Duration>,
    /// The key and the digest of the body that it was made with.
    pub(crate) idempotency: Option<(String, String)>,
}

impl Marks {
    /// The marks of a new sandbox.
    pub(crate) fn new(on_timeout: OnTimeout) -> Self {
        Self {
            on_timeout: Some(on_timeout),
            secure: true,
            public_traffic: true,
            deny_out: Vec::new(),
            mask_host: None,
            keep_paused: None,
            idempotency: None,
        }
    }

    /// Reads what was kept.
    pub(crate) fn of(sandbox: &Sandbox) -> Self {
        let kept = &sandbox.spec.extensions;
        let text = |name: &str| kept.get(name).cloned();
        let on_timeout = match kept.get(ON_TIMEOUT).map(String::as_str) {
            Some("kill") => Some(OnTimeout::Kill),
            Some("pause") => Some(OnTimeout::Pause(Keep::Memory)),
            Some("pause-files") => Some(OnTimeout::Pause(Keep::Files)),
            Some("never") => Some(OnTimeout::Never),
            Some(_) | None => None,
        };
        let seconds = kept.get(KEEP_PAUSED).and_then(|text| text.parse().ok());
        Self {
            on_timeout,
            secure: kept.get(SECURE).is_none_or(|text| text != "false"),
            public_traffic: on_timeout.is_some()
                && kept.get(PUBLIC_TRAFFIC).is_none_or(|text| text != "false"),
            deny_out: kept.get(DENY_OUT).map(|list| split(list)).unwrap_or_default(),
            mask_host: text(MASK_HOST),
            keep_paused: seconds.map(Duration::from_secs),
            idempotency: text(IDEMPOTENCY_KEY).zip(text(IDEMPOTENCY_BODY)),
        }
    }

    /// As they are kept.
    pub(crate) fn to_extensions(&self) -> BTreeMap<String, String> {
        let mut kept = BTreeMap::new();
        let mut keep = |name: &str, value: String| kept.insert(name.to_owned(), value);
        if let Some(on_timeout) = self.on_timeout {
            keep(ON_TIMEOUT, on_timeout.text().to_owned());
        }
        if !self.secure {
            keep(SECURE, "false".to_owned());
        }
        if !self.public_traffic {
            keep(PUBLIC_TRAFFIC, "false".to_owned());
        }
        if !self.deny_out.is_empty() {
            keep(DENY_OUT, self.deny_out.join(","));
        }
        if let Some(host) = &self.mask_host {
            keep(MASK_HOST, host.clone());
        }
        if let Some(duration) = self.keep_paused {
            keep(KEEP_PAUSED, duration.as_secs().to_string());
        }
        if let Some((key, body)) = &self.idempotency {
            keep(IDEMPOTENCY_KEY, key.clone());
            keep(IDEMPOTENCY_BODY, body.clone());
        }
        kept
    }
}

fn split(list: &str) -> Vec<String> {
    list.split(',').map(str::to_owned).collect()
}

/// What happens when this sandbox's time is up.
pub(crate) fn on_timeout(sandbox: &Sandbox) -> OnTimeout {
    let life = &sandbox.life;
    // The deadline of a paused sandbox may be how long its pause is kept.
    let standing = life.expiry().filter(|_| life.lifetime().is_some());
    Marks::of(sandbox).on_timeout.unwrap_or(match standing {
        Some(Expiry::Pause(keep)) => OnTimeout::Pause(keep),
        Some(Expiry::Kill) => OnTimeout::Kill,
        None => OnTimeout::Never,
    })
}
