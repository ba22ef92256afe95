//! Bodies of requests about templates.

use atoll_core::RegistryAuth;
use atoll_template::{Ground, NewBuild, Recipe, Step};
use serde_json::Value;

use crate::lifecycle::error::ApiError;
use crate::lifecycle::read::Object;

/// The user name under which Google's registries take a service account's key.
const GOOGLE_USER: &str = "_json_key";

/// A body of `POST /v3/templates`; the older route calls the name `alias`.
pub(super) fn new_build(body: &Value) -> Result<NewBuild, ApiError> {
    let body = Object::body(body)?;
    if body.get("minFreeDiskMb").is_some() {
        let reason = "sandboxes share the machine's disk, none has space of its own; leave it out";
        return Err(ApiError::unsupported("minFreeDiskMb", reason));
    }
    let name = match body.text("name")? {
        Some(name) => name,
        None => body.text("alias")?.ok_or_else(|| ApiError::invalid("name", "is required"))?,
    };
    Ok(NewBuild {
        name: name.to_owned(),
        tags: body.texts("tags")?,
        cpu_count: count(&body, "cpuCount")?,
        memory_mib: count(&body, "memoryMB")?,
    })
}

fn count(body: &Object<'_>, name: &str) -> Result<Option<u32>, ApiError> {
    let Some(number) = body.integer(name)? else { return Ok(None) };
    let count = u32::try_from(number);
    count.map(Some).map_err(|_| ApiError::invalid(name, "must be a whole number above 0"))
}

/// A body of `POST /v2/templates/{id}/builds/{build}`.
pub(super) fn recipe(body: &Value) -> Result<Recipe, ApiError> {
    let body = Object::body(body)?;
    let auth = body.object("fromImageRegistry")?.map(|object| registry(&object)).transpose()?;
    let from = match (filled(&body, "fromImage")?, filled(&body, "fromTemplate")?) {
        (Some(image), None) => Ground::Image(image, auth),
        (None, Some(template)) if auth.is_none() => Ground::Template(template),
        (None, Some(_)) => {
            return Err(ApiError::invalid("fromImageRegistry", "goes with fromImage only"));
        }
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid("fromTemplate", "excludes fromImage; send one of them"));
        }
        (None, None) => {
            return Err(ApiError::invalid("fromImage", "is required, or fromTemplate is"));
        }
    };
    let steps = body.array("steps")?.iter().enumerate();
    Ok(Recipe {
        from,
        force: body.flag("force")?.unwrap_or(false),
        steps: steps.map(|(at, step)| read_step(at, step)).collect::<Result<_, _>>()?,
        start: filled(&body, "startCmd")?,
        ready: filled(&body, "readyCmd")?,
    })
}

fn read_step(at: usize, step: &Value) -> Result<Step, ApiError> {
    let step = Object::at(&format!("steps[{at}]"), step)?;
    let (kind, args) = (step.need_text("type")?, step.texts("args")?);
    let force = step.flag("force")?.unwrap_or(false);
    Ok(Step::parse(at + 1, kind, &args, step.text("filesHash")?, force)?)
}

fn registry(object: &Object<'_>) -> Result<RegistryAuth, ApiError> {
    let owned = |text: &str| text.to_owned();
    match object.need_text("type")? {
        "registry" => Ok(RegistryAuth {
            username: object.need_text("username").map(owned)?,
            password: object.need_text("password").map(owned)?,
        }),
        "gcp" => Ok(RegistryAuth {
            username: GOOGLE_USER.to_owned(),
            password: object.need_text("serviceAccountJson").map(owned)?,
        }),
        "aws" => {
            let reason = "get a password with `aws ecr get-login-password` and send the type \
                          registry with the user AWS";
            Err(ApiError::unsupported("fromImageRegistry.type", reason))
        }
        _ => {
            let problem = "is unknown: send registry or gcp";
            Err(ApiError::invalid("fromImageRegistry.type", problem))
        }
    }
}

/// A text that says something.
fn filled(body: &Object<'_>, name: &str) -> Result<Option<String>, ApiError> {
    Ok(body.text(name)?.filter(|text| !text.trim().is_empty()).map(str::to_owned))
}
