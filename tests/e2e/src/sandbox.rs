//! Sandboxes of a server, driven as a client would.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::http::{Answer, Client};

/// Longest time that anything may take to come true.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a command printed and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    /// Standard output, lines joined.
    pub stdout: String,
    /// Standard error, lines joined.
    pub stderr: String,
    /// Exit code; none when the command was cut off.
    pub code: Option<i32>,
}

/// Makes a sandbox of `base` that stays, with `extra` members merged into the request.
pub fn create(client: &mut Client, extra: &Value) -> Result<String> {
    let mut body = json!({
        "image": { "uri": "base" },
        "entrypoint": ["sleep", "infinity"],
        "timeout": 600,
        "resourceLimits": { "cpu": "1", "memory": "256Mi" },
    });
    if let (Some(body), Some(extra)) = (body.as_object_mut(), extra.as_object()) {
        body.extend(extra.clone());
    }
    let made = client.json("POST", "/v1/sandboxes", Some(&body))?;
    let id = made["id"].as_str().context("a sandbox without an id")?.to_owned();
    wait_state(client, &id, "Running")?;
    Ok(id)
}

/// Removes a sandbox.
pub fn remove(client: &mut Client, id: &str) -> Result<()> {
    client.json("DELETE", &format!("/v1/sandboxes/{id}"), None).map(drop)
}

/// The state of a sandbox; none when it is not there.
pub fn state(client: &mut Client, id: &str) -> Result<Option<String>> {
    let answer = client.send("GET", &format!("/v1/sandboxes/{id}"), "", b"")?;
    if answer.status == 404 {
        return Ok(None);
    }
    let body: Value = serde_json::from_slice(&answer.body).context("a state that is no JSON")?;
    Ok(body["status"]["state"].as_str().map(str::to_owned))
}

/// Waits until a sandbox is in this state.
pub fn wait_state(client: &mut Client, id: &str, wanted: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = state(client, id)?;
        if seen.as_deref() == Some(wanted) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("sandbox {id} is {seen:?} and never became {wanted}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a shell command in a sandbox and waits for its end.
pub fn run(client: &mut Client, id: &str, command: &str) -> Result<Ran> {
    let answer = start(client, id, &json!({ "command": command }))?;
    if answer.status != 200 {
        bail!("{command:?} in {id}: {}", answer.explain());
    }
    let mut ran = Ran { stdout: String::new(), stderr: String::new(), code: None };
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    for event in text.split("\n\n").filter_map(|e| serde_json::from_str::<Value>(e).ok()) {
        let line = event["text"].as_str().unwrap_or_default();
        match event["type"].as_str() {
            Some("stdout") => ran.stdout.push_str(line),
            Some("stderr") => ran.stderr.push_str(line),
            Some("execution_complete") => ran.code = Some(0),
            Some("error") => {
                ran.code = event["error"]["evalue"].as_str().and_then(|code| code.parse().ok());
            }
            _ => {}
        }
    }
    Ok(ran)
}

/// Sends a command's request; the answer is its stream of events.
pub fn start(client: &mut Client, id: &str, body: &Value) -> Result<Answer> {
    let path = format!("/v1/sandboxes/{id}/proxy/44772/command");
    client.send("POST", &path, "application/json", body.to_string().as_bytes())
}
