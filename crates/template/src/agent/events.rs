//! A command's events, as the agent writes them: JSON objects, each on a line of its own.

use serde::Deserialize;

use super::AgentError;

/// Longest event that is read; the agent cuts lines far below.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// Where a line was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    /// What happened, unless it ended well.
    pub(crate) problem: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    error: Option<Problem>,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    evalue: String,
    #[serde(default)]
    traceback: Vec<String>,
}

/// What has come of the line at hand.
#[derive(Debug, Default)]
pub(super) struct Events(Vec<u8>);

impl Events {
    /// Takes bytes; answers how the command ended once that is told.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        heard: &mut (dyn FnMut(Stream, &str) + Send),
    ) -> Result<Option<Outcome>, AgentError> {
        for byte in bytes {
            if *byte != b'\n' {
                if self.0.len() >= EVENT_BYTES_MAX {
                    return Err(AgentError::Strange("an event is too long".to_owned()));
                }
                self.0.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.0);
            if let Some(outcome) = take(&line, heard)? {
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }
}

fn take(
    line: &[u8],
    heard: &mut (dyn FnMut(Stream, &str) + Send),
) -> Result<Option<Outcome>, AgentError> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let event: Event = serde_json::from_slice(line)
        .map_err(|error| AgentError::Strange(format!("an event is no JSON: {error}")))?;
    let text = event.text.as_deref().unwrap_or_default().trim_end_matches(['\n', '\r']);
    match event.kind.as_str() {
        "stdout" => heard(Stream::Out, text),
        "stderr" => heard(Stream::Err, text),
        "execution_complete" => return Ok(Some(Outcome { code: 0, problem: None })),
        "error" => {
            let problem =
                event.error.unwrap_or(Problem { evalue: String::new(), traceback: Vec::new() });
            let code = problem.evalue.parse().unwrap_or(-1);
            let words = problem.traceback.join("; ");
            let words = if words.is_empty() { format!("exit status {code}") } else { words };
            return Ok(Some(Outcome { code, problem: Some(words) }));
        }
        // What it was given as a name, signs of life, and what later agents may tell.
        _ => {}
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = "{\"type\":\"init\",\"text\":\"x\",\"timestamp\":1}\n\n\
            {\"type\":\"stdout\",\"text\":\"a\",\"timestamp\":1}\n\n{\"type\":\"ping\",\"text\":\"pong\"}\n\n\
            {\"type\":\"stderr\",\"text\":\"\\n\"}\n\n\
            {\"type\":\"error\",\"error\":{\"ename\":\"E\",\"evalue\":\"3\",\"traceback\":[\"exit status 3\"]}}\n\n";
        for size in [1, 7, text.len()] {
            let (mut events, mut lines, mut end) = (Events::default(), Vec::new(), None);
            for piece in text.as_bytes().chunks(size) {
                let mut heard = |stream, line: &str| lines.push((stream, line.to_owned()));
                end = end.or(events.push(piece, &mut heard).unwrap());
            }
            assert_eq!(lines, [(Stream::Out, "a".into()), (Stream::Err, String::new())]);
            assert_eq!(end, Some(Outcome { code: 3, problem: Some("exit status 3".into()) }));
        }
    }

    #[test]
    fn nonsense_is_an_error_and_not_a_panic() {
        assert!(Events::default().push(b"{]\n", &mut |_, _| {}).is_err());
        let endless = vec![b'x'; EVENT_BYTES_MAX + 1];
        assert!(Events::default().push(&endless, &mut |_, _| {}).is_err());
    }
}
