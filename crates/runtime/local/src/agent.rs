//! What the agent is told.

use std::collections::BTreeMap;

use atoll_core::Sandbox;
use atoll_image::ImageConfig;
use serde_json::{Value, json};

use crate::protocol::Door;

/// The agent's configuration: what was asked for over what the image says.
pub(crate) fn config(
    sandbox: &Sandbox,
    image: &ImageConfig,
    key: &str,
    door: Option<&Door>,
) -> String {
    let spec = &sandbox.spec;
    let image_command: Vec<String> = image.entrypoint.iter().chain(&image.cmd).cloned().collect();
    let entrypoint = if spec.entrypoint.is_empty() { &image_command } else { &spec.entrypoint };
    let ready = spec.ready.as_ref().map(|check| {
        let (every, within) = (check.every.as_millis(), check.within.as_millis());
        json!({ "command": check.command, "every_ms": every, "within_ms": within })
    });
    let mut config = described(sandbox, image);
    config["id"] = json!(sandbox.id.as_str());
    config["entrypoint"] = json!(entrypoint);
    config["ready"] = json!(ready);
    config["warm"] = json!(sandbox.stock_of.is_some());
    config["key"] = json!(key);
    config["door"] = json!(door);
    config.to_string()
}

/// What commands start from, for an agent that runs already.
pub(crate) fn defaults(sandbox: &Sandbox, image: &ImageConfig) -> String {
    described(sandbox, image).to_string()
}

fn described(sandbox: &Sandbox, image: &ImageConfig) -> Value {
    let (spec, id) = (&sandbox.spec, sandbox.id.as_str());
    let mut env: BTreeMap<&str, &str> =
        image.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    env.insert("OPENSANDBOX_ID", id);
    if let Some(template) = &spec.template {
        env.insert("E2B_SANDBOX", "true");
        env.insert("E2B_SANDBOX_ID", id);
        env.insert("E2B_TEMPLATE_ID", &template.id);
    }
    env.extend(spec.env.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    let guest = &spec.guest;
    json!({
        "env": env,
        "cwd": guest.workdir.as_ref().or(image.working_dir.as_ref()),
        "user": guest.user.as_ref().or(image.user.as_ref()),
        // What the image names must be in the image.
        "make": guest.user.is_some(),
    })
}

#[cfg(test)]
mod tests;
