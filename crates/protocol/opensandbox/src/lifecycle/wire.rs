//! Request bodies as the schema has them. What doesn't fit is a 422 that names the member.

use std::collections::BTreeMap;

use atoll_core::{RegistryAuth, Timestamp};
use serde_json::Value;

use super::error::ApiError;
use super::read::{Object, Problems};
use super::time;

mod volume;

pub(crate) use volume::{Backend, Volume};

/// Shortest lifetime that the schema allows, in seconds.
const TIMEOUT_SECONDS_MIN: i64 = 60;
/// The variable through which the reference server hands hooks to its agent.
const RESERVED_VARIABLE: &str = "OPENSANDBOX_LIFECYCLE";

/// `POST /sandboxes`.
#[derive(Debug, Default)]
pub(crate) struct CreateSandbox {
    pub(crate) image: Option<Image>,
    pub(crate) snapshot_id: Option<String>,
    pub(crate) template_id: Option<String>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) resource_limits: BTreeMap<String, String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) platform: Option<(String, String)>,
    pub(crate) network_policy: Option<NetworkPolicy>,
    pub(crate) credential_proxy: bool,
    pub(crate) secure_access: bool,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) has_hooks: bool,
    pub(crate) extensions: BTreeMap<String, String>,
}

/// An image and what its registry asks for.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) uri: String,
    pub(crate) auth: Option<RegistryAuth>,
}

/// What a sandbox may reach.
#[derive(Debug)]
pub(crate) struct NetworkPolicy {
    pub(crate) allows_by_default: bool,
    pub(crate) has_rules: bool,
}

impl CreateSandbox {
    /// Reads a body.
    pub(crate) fn read(body: &Value) -> Result<Self, ApiError> {
        let object = Object::body(body)?;
        let mut problems = Problems::default();
        let p = &mut problems;
        let extensions = object.strict_map(p, "extensions").unwrap_or_default();
        let create = Self {
            image: read_image(&object, p),
            snapshot_id: not_blank(object.string(p, "snapshotId")),
            template_id: not_blank(object.string(p, "templateId")),
            timeout_seconds: read_timeout(&object, p),
            resource_limits: object.strict_map(p, "resourceLimits").unwrap_or_default(),
            env: read_env(&object, p),
            metadata: object.strict_map(p, "metadata").unwrap_or_default(),
            entrypoint: object.strings(p, "entrypoint").unwrap_or_default(),
            platform: read_platform(&object, p),
            network_policy: read_network_policy(&object, p),
            credential_proxy: object
                .object(p, "credentialProxy")
                .and_then(|proxy| proxy.flag(p, "enabled"))
                .unwrap_or(false),
            secure_access: object.flag(p, "secureAccess").unwrap_or(false),
            volumes: object
                .objects(p, "volumes")
                .iter()
                .filter_map(|volume| Volume::read(volume, p))
                .collect(),
            has_hooks: object
                .object(p, "lifecycle")
                .is_some_and(|hooks| !hooks.members().is_empty()),
            extensions,
        };
        // Read for its types alone: one machine has no scheduler that would use requests.
        object.strict_map(p, "resourceRequests");
        create.check_combination(&object, p);
        problems.finish()?;
        Ok(create)
    }

    /// Members that need or exclude each other.
    fn check_combination(&self, object: &Object<'_>, problems: &mut Problems) {
        if object.get("entrypoint").is_some_and(|e| e.as_array().is_some_and(Vec::is_empty)) {
            let message = "List should have at least 1 item after validation, not 0";
            object.wrong(problems, "entrypoint", "too_short", message);
        }
        // A pool or a template brings its own image; both are refused later, with their own code.
        if self.template_id.is_some() || self.extensions.contains_key("poolRef") {
            return;
        }
        match (&self.image, &self.snapshot_id) {
            (None, None) if object.get("image").is_none_or(Value::is_object) => {
                let message = "exactly one of image and snapshotId is needed";
                object.wrong(problems, "image", "missing", message);
            }
            (Some(_), Some(_)) => {
                let message = "give either image or snapshotId, not both";
                object.wrong(problems, "snapshotId", "value_error", message);
            }
            (None | Some(_), None | Some(_)) => {}
        }
        if self.image.is_some() && object.get("entrypoint").is_none() {
            object.missing(problems, "entrypoint");
        }
        if object.get("resourceLimits").is_none() {
            object.missing(problems, "resourceLimits");
        }
    }
}

fn read_image(object: &Object<'_>, problems: &mut Problems) -> Option<Image> {
    let image = object.object(problems, "image")?;
    let uri = not_blank(image.required_string(problems, "uri"))?;
    let auth = image.object(problems, "auth").and_then(|auth| {
        let username = auth.required_string(problems, "username");
        let password = auth.required_string(problems, "password");
        Some(RegistryAuth { username: username?, password: password? })
    });
    Some(Image { uri: uri.trim().to_owned(), auth })
}

fn read_timeout(object: &Object<'_>, problems: &mut Problems) -> Option<u64> {
    let seconds = object.integer(problems, "timeout")?;
    if seconds < TIMEOUT_SECONDS_MIN {
        let message = format!("Input should be greater than or equal to {TIMEOUT_SECONDS_MIN}");
        object.wrong(problems, "timeout", "greater_than_equal", message);
    }
    u64::try_from(seconds).ok()
}

fn read_env(object: &Object<'_>, problems: &mut Problems) -> BTreeMap<String, String> {
    let env = object.string_map(problems, "env").unwrap_or_default();
    if env.contains_key(RESERVED_VARIABLE) {
        let message = format!("{RESERVED_VARIABLE} is reserved; choose another name");
        object.wrong(problems, "env", "value_error", message);
    }
    env.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn read_platform(object: &Object<'_>, problems: &mut Problems) -> Option<(String, String)> {
    let platform = object.object(problems, "platform")?;
    let os = platform.required_string(problems, "os");
    let arch = platform.required_string(problems, "arch");
    Some((os?, arch?))
}

fn read_network_policy(object: &Object<'_>, problems: &mut Problems) -> Option<NetworkPolicy> {
    let policy = object.object(problems, "networkPolicy")?;
    let action = policy.string(problems, "defaultAction");
    if action.as_deref().is_some_and(|action| !["allow", "deny"].contains(&action)) {
        let message = "Input should be 'allow' or 'deny'";
        policy.wrong(problems, "defaultAction", "literal_error", message);
    }
    let rules = policy.objects(problems, "egress");
    for rule in &rules {
        rule.required_string(problems, "action");
        rule.required_string(problems, "target");
    }
    // A policy without a default denies.
    Some(NetworkPolicy {
        allows_by_default: action.as_deref() == Some("allow"),
        has_rules: !rules.is_empty(),
    })
}

/// `PATCH …/metadata`: labels to set and (`None`) to remove.
pub(crate) fn read_metadata_patch(
    body: &Value,
) -> Result<BTreeMap<String, Option<String>>, ApiError> {
    let object = Object::body(body)?;
    let mut problems = Problems::default();
    let patch = object.as_string_map(&mut problems);
    problems.finish()?;
    Ok(patch)
}

/// `POST …/renew-expiration`.
pub(crate) fn read_renewal(body: &Value) -> Result<Timestamp, ApiError> {
    let object = Object::body(body)?;
    let mut problems = Problems::default();
    let value = object.get("expiresAt");
    let time = value.and_then(time::parse);
    match (value, time) {
        (None, _) => object.missing(&mut problems, "expiresAt"),
        (Some(_), None) => {
            let message = "Input should be a valid datetime, such as 2030-01-31T12:00:00Z";
            object.wrong(&mut problems, "expiresAt", "datetime_parsing", message);
        }
        (Some(_), Some(_)) => {}
    }
    problems.finish()?;
    Ok(time.unwrap_or_default())
}

/// `POST …/snapshots`: the snapshot's name, if it gets one.
pub(crate) fn read_snapshot(body: Option<&Value>) -> Result<Option<String>, ApiError> {
    let Some(body) = body.filter(|body| !body.is_null()) else { return Ok(None) };
    let object = Object::body(body)?;
    let mut problems = Problems::default();
    let name = object.string(&mut problems, "name");
    let chars = name.as_ref().map(|name| name.chars().count());
    if chars == Some(0) {
        let message = "String should have at least 1 character";
        object.wrong(&mut problems, "name", "string_too_short", message);
    }
    if chars.is_some_and(|chars| chars > 255) {
        let message = "String should have at most 255 characters";
        object.wrong(&mut problems, "name", "string_too_long", message);
    }
    problems.finish()?;
    Ok(name)
}

/// `POST /metrics/events`: only checked, because the server counts for itself.
pub(crate) fn check_metrics_event(body: &Value) -> Result<(), ApiError> {
    let object = Object::body(body)?;
    let mut problems = Problems::default();
    object.required_string(&mut problems, "eventType");
    match object.integer(&mut problems, "createDurationMs") {
        None if object.get("createDurationMs").is_none() => {
            object.missing(&mut problems, "createDurationMs");
        }
        Some(millis) if millis < 0 => {
            let message = "Input should be greater than or equal to 0";
            object.wrong(&mut problems, "createDurationMs", "greater_than_equal", message);
        }
        None | Some(_) => {}
    }
    if object.get("success").is_none() {
        object.missing(&mut problems, "success");
    }
    object.flag(&mut problems, "success");
    problems.finish()
}

fn not_blank(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}
