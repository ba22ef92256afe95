//! From a body that fits the schema to what the core understands: meaning, limits, refusals.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_control::Create;
use atoll_core::{ImageSource, Platform, SandboxSpec, SnapshotId, Source};

use axum::http::StatusCode;

use super::error::{ApiError, Doing};
use super::state::DoorConfig;
use super::wire::CreateSandbox;

pub(crate) mod labels;
mod resources;
mod volumes;

/// Extensions with this prefix are the client's own; it gets them back.
const ECHOED_PREFIX: &str = "opensandbox.extensions.";
/// Arguments, variables and extensions of one sandbox.
const ITEMS_MAX: usize = 1024;

/// Turns a creation into what the core understands.
pub(crate) fn create(config: &DoorConfig, wire: CreateSandbox) -> Result<Create, ApiError> {
    refuse_unsupported(&wire)?;
    labels::check_new(&wire.metadata)?;
    check_env(&wire.env)?;
    let lifetime = lifetime(config, wire.timeout_seconds)?;
    let resources = resources::read(&wire.resource_limits)?;
    let platform = wire.platform.as_ref().map(platform).transpose()?;
    let mounts = volumes::read(config, &wire.volumes)?;
    let entrypoint = entrypoint(&wire)?;
    let source = source(wire.image, wire.snapshot_id)?;
    let mut extensions = wire.extensions;
    extensions.retain(|key, _| key.starts_with(ECHOED_PREFIX));
    let spec = SandboxSpec {
        entrypoint,
        env: wire.env,
        resources,
        metadata: wire.metadata,
        extensions,
        platform,
        mounts,
        ..SandboxSpec::new(source)
    };
    Ok(Create { lifetime, ..Create::new(spec) })
}

/// What the contract has and this server hasn't is refused, never ignored.
fn refuse_unsupported(wire: &CreateSandbox) -> Result<(), ApiError> {
    if wire.extensions.contains_key("poolRef") {
        return Err(ApiError::bad_request(
            "SANDBOX::UNSUPPORTED_POOL_REF",
            "extensions.poolRef: this server has no named pools; leave it out, since every \
             sandbox starts in milliseconds"
                .to_owned(),
        ));
    }
    if wire.template_id.is_some() {
        return Err(ApiError::new(
            StatusCode::NOT_IMPLEMENTED,
            "FSB::API_NOT_SUPPORTED",
            "templateId: this server has no templates; give image or snapshotId instead",
        ));
    }
    if wire.network_policy.as_ref().is_some_and(|p| !p.allows_by_default || p.has_rules) {
        return Err(ApiError::unsupported(
            "networkPolicy",
            "this version does not enforce egress rules, so it refuses them; leave \
             networkPolicy out, or send {\"defaultAction\":\"allow\",\"egress\":[]}",
        ));
    }
    if wire.credential_proxy {
        return Err(ApiError::unsupported("credentialProxy", "not available; leave it out"));
    }
    if wire.secure_access {
        return Err(ApiError::unsupported(
            "secureAccess",
            "not available as an option: every endpoint here carries an unguessable token or \
             needs the API key; leave it out or send false",
        ));
    }
    if wire.has_hooks {
        return Err(ApiError::unsupported(
            "lifecycle",
            "hooks are not available; start such work from the entrypoint",
        ));
    }
    refuse_extensions(&wire.extensions)
}

fn refuse_extensions(extensions: &BTreeMap<String, String>) -> Result<(), ApiError> {
    if let Some(seconds) = extensions.get("access.renew.extend.seconds") {
        let field = "extensions.access.renew.extend.seconds";
        let valid = seconds.parse::<u32>().is_ok_and(|s| (300..=86_400).contains(&s));
        return Err(if valid {
            ApiError::unsupported(field, "renewal on access is not available; call renew instead")
        } else {
            ApiError::invalid(field, "must be a whole number from 300 to 86400, as text")
        });
    }
    if extensions.contains_key("bootstrap.execd.isolation") {
        return Err(ApiError::unsupported(
            "extensions.bootstrap.execd.isolation",
            "isolated sessions are not available; leave it out",
        ));
    }
    if extensions.len() > ITEMS_MAX {
        return Err(ApiError::invalid("extensions", format!("at most {ITEMS_MAX} are kept")));
    }
    Ok(())
}

fn lifetime(config: &DoorConfig, seconds: Option<u64>) -> Result<Option<Duration>, ApiError> {
    let Some(lifetime) = seconds.map(Duration::from_secs) else {
        if config.allow_no_expiry {
            return Ok(None);
        }
        return Err(ApiError::invalid(
            "timeout",
            format!(
                "is needed, since sandboxes without an end are not allowed here: send {} to {} \
                 seconds, or ask the operator to set limits.allow_no_expiry",
                config.timeout_min.as_secs(),
                config.timeout_max.as_secs(),
            ),
        ));
    };
    if lifetime < config.timeout_min || lifetime > config.timeout_max {
        return Err(ApiError::invalid(
            "timeout",
            format!(
                "must be between {} and {} seconds on this server; renew to live longer",
                config.timeout_min.as_secs(),
                config.timeout_max.as_secs(),
            ),
        ));
    }
    Ok(Some(lifetime))
}

fn source(
    image: Option<super::wire::Image>,
    snapshot_id: Option<String>,
) -> Result<Source, ApiError> {
    if let Some(image) = image {
        if image.uri.len() > 512 || image.uri.chars().any(|c| c.is_control() || c == ' ') {
            return Err(ApiError::invalid(
                "image.uri",
                "must be an image name of at most 512 characters without blanks",
            ));
        }
        return Ok(Source::Image(ImageSource { reference: image.uri, auth: image.auth }));
    }
    let text = snapshot_id.unwrap_or_default();
    SnapshotId::parse(&text).map(Source::Snapshot).map_err(|_| {
        let error = atoll_core::Error::not_found("this snapshot");
        ApiError::from_control(Doing::Create, &error)
    })
}

fn entrypoint(wire: &CreateSandbox) -> Result<Vec<String>, ApiError> {
    if wire.entrypoint.is_empty() {
        return Ok(["tail", "-f", "/dev/null"].map(str::to_owned).to_vec());
    }
    let fits = wire.entrypoint.len() <= ITEMS_MAX
        && !wire.entrypoint[0].is_empty()
        && wire.entrypoint.iter().all(|argument| !argument.contains('\0'));
    if !fits {
        return Err(ApiError::invalid(
            "entrypoint",
            format!("must begin with a program and have at most {ITEMS_MAX} items without NUL"),
        ));
    }
    Ok(wire.entrypoint.clone())
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), ApiError> {
    if env.len() > ITEMS_MAX {
        return Err(ApiError::invalid("env", format!("at most {ITEMS_MAX} variables are kept")));
    }
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(ApiError::invalid(
                "env",
                format!("{name:?} can't be a variable: no empty name, no '=' in it, no NUL"),
            ));
        }
        if name.starts_with("OPENSANDBOX_EGRESS_") {
            return Err(ApiError::unsupported(
                &format!("env.{name}"),
                "there is no egress sidecar to configure; leave it out",
            ));
        }
    }
    Ok(())
}

fn platform((os, arch): &(String, String)) -> Result<Platform, ApiError> {
    let host = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    if os.eq_ignore_ascii_case("linux") && arch.eq_ignore_ascii_case(host) {
        return Ok(Platform { os: "linux".to_owned(), arch: host.to_owned() });
    }
    Err(ApiError::invalid(
        "platform",
        format!("this machine runs linux/{host} only; leave platform out or ask for that"),
    ))
}
