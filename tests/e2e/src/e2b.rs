//! Sandboxes driven as the E2B SDKs do it: the same calls in the same order.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::http::{Answer, Client};
use crate::sandbox::Ran;

const ENVD_PORT: &str = "49983";
const INTERPRETER_PORT: &str = "49999";
/// Longest build.
const BUILT_WITHIN: Duration = Duration::from_secs(300);
/// Marks the last frame of a stream.
const END_OF_STREAM: u8 = 2;

/// A sandbox and the word that opens it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Made {
    /// Its id.
    pub id: String,
    /// Its access token.
    pub token: String,
}

/// Makes a sandbox of `template`, with `extra` members merged into the request.
pub fn create(client: &mut Client, template: &str, extra: &Value) -> Result<Made> {
    let answer = try_create(client, template, extra)?;
    ensure!(answer.status == 201, "create {template}: {}", answer.explain());
    made(&answer)
}

/// Asks for a sandbox; the answer may be a refusal.
pub fn try_create(client: &mut Client, template: &str, extra: &Value) -> Result<Answer> {
    let mut body = json!({ "templateID": template, "metadata": {}, "envVars": {} });
    if let (Some(body), Some(extra)) = (body.as_object_mut(), extra.as_object()) {
        body.extend(extra.clone());
    }
    client.send("POST", "/v2/sandboxes", "application/json", body.to_string().as_bytes())
}

/// The sandbox that an answer to create or connect tells of.
pub fn made(answer: &Answer) -> Result<Made> {
    let body: Value = serde_json::from_slice(&answer.body).context("a sandbox that is no JSON")?;
    let text = |name: &str| body[name].as_str().map(str::to_owned);
    let id = text("sandboxID").context("no sandboxID")?;
    Ok(Made { id, token: text("envdAccessToken").context("no envdAccessToken")? })
}

/// Removes a sandbox.
pub fn kill(client: &mut Client, id: &str) -> Result<()> {
    client.json("DELETE", &format!("/sandboxes/{id}"), None).map(drop)
}

/// `running`, `paused`, or none when it is not there.
pub fn state(client: &mut Client, id: &str) -> Result<Option<String>> {
    let answer = client.send("GET", &format!("/sandboxes/{id}"), "", b"")?;
    if answer.status == 404 {
        return Ok(None);
    }
    let body: Value = serde_json::from_slice(&answer.body).context("a state that is no JSON")?;
    Ok(body["state"].as_str().map(str::to_owned))
}

/// Runs a shell command and waits for its end.
pub fn run(client: &mut Client, made: &Made, command: &str) -> Result<Ran> {
    let args = ["-l", "-c", command];
    start(client, made, &json!({ "process": { "cmd": "/bin/bash", "args": args }, "stdin": false }))
}

/// Starts a process as told and waits for its end.
pub fn start(client: &mut Client, made: &Made, request: &Value) -> Result<Ran> {
    let body = frame(0, request.to_string().as_bytes());
    let kind = "application/connect+json";
    let answer = data(client, made, ENVD_PORT, "/process.Process/Start", kind, &body)?;
    ensure!(answer.status == 200, "start: {}", answer.explain());
    ran(&answer.body)
}

/// Runs code in the default context; the answer's events, one per line.
pub fn run_code(client: &mut Client, made: &Made, code: &str) -> Result<Vec<Value>> {
    let body = json!({ "code": code, "context_id": null, "language": null, "env_vars": null });
    let body = body.to_string();
    let kind = "application/json";
    let answer = data(client, made, INTERPRETER_PORT, "/execute", kind, body.as_bytes())?;
    ensure!(answer.status == 200, "execute: {}", answer.explain());
    let lines = answer.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).context("an event that is no JSON")).collect()
}

/// Builds a template of this name to the end.
pub fn build(client: &mut Client, name: &str, recipe: &Value) -> Result<()> {
    let made = client.json("POST", "/v3/templates", Some(&json!({ "name": name })))?;
    let id = |key: &str| made[key].as_str().with_context(|| format!("no {key} in {made}"));
    let (template, build) = (id("templateID")?, id("buildID")?);
    let path = format!("/v2/templates/{template}/builds/{build}");
    client.json("POST", &path, Some(recipe))?;
    let deadline = Instant::now() + BUILT_WITHIN;
    loop {
        let path = format!("/templates/{template}/builds/{build}/status?logsOffset=0");
        let status = client.json("GET", &path, None)?;
        match status["status"].as_str() {
            Some("ready") => return Ok(()),
            Some("error") => bail!("the build of {name} failed: {status}"),
            _ => ensure!(Instant::now() < deadline, "the build takes too long: {status}"),
        }
    }
}

fn data(
    client: &mut Client,
    made: &Made,
    port: &str,
    path: &str,
    kind: &str,
    body: &[u8],
) -> Result<Answer> {
    let headers = [
        ("E2b-Sandbox-Id", made.id.as_str()),
        ("E2b-Sandbox-Port", port),
        ("X-Access-Token", made.token.as_str()),
        ("Connect-Protocol-Version", "1"),
    ];
    client.send_with("POST", path, kind, &headers, body)
}

fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("requests are small");
    let mut frame = vec![flags];
    frame.extend(length.to_be_bytes());
    frame.extend(body);
    frame
}

fn ran(mut stream: &[u8]) -> Result<Ran> {
    let mut ran = Ran { stdout: String::new(), stderr: String::new(), code: None };
    while let Some((head, rest)) = stream.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (body, after) = rest.split_at_checked(length).context("a frame cut off")?;
        stream = after;
        let message: Value = serde_json::from_slice(body).context("a frame that is no JSON")?;
        ensure!(message["error"].is_null(), "the stream ended with {message}");
        if head[0] == END_OF_STREAM {
            break;
        }
        let event = &message["event"];
        for (name, text) in [("stdout", &mut ran.stdout), ("stderr", &mut ran.stderr)] {
            if let Some(data) = event["data"][name].as_str() {
                text.push_str(&String::from_utf8_lossy(&base64(data)?));
            }
        }
        if event["end"].is_object() {
            ran.code = Some(i32::try_from(event["end"]["exitCode"].as_i64().unwrap_or(0))?);
        }
    }
    Ok(ran)
}

fn base64(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for symbol in text.bytes().filter(|symbol| *symbol != b'=') {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            other => bail!("{other} is no base64"),
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff)?);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{base64, frame, ran};

    #[test]
    fn a_stream_is_read_to_its_end() {
        let mut stream = frame(0, br#"{"event":{"data":{"stdout":"aGVsbG8K"}}}"#);
        stream.extend(frame(0, br#"{"event":{"end":{"exitCode":3}}}"#));
        stream.extend(frame(2, b"{}"));
        let ran = ran(&stream).unwrap();
        assert_eq!((ran.stdout.as_str(), ran.code), ("hello\n", Some(3)));
        assert_eq!(base64("YQ==").unwrap(), b"a");
    }

    #[test]
    fn an_error_in_the_stream_is_an_error() {
        let stream = frame(2, br#"{"error":{"code":"not_found"}}"#);
        assert!(ran(&stream).is_err());
    }
}
