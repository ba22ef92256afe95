//! The code interpreter API's JSON shapes.

use atoll_guest::kernel::{Event, Info, Text};
use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
pub(super) struct ExecuteRequest {
    pub(super) code: String,
    pub(super) context_id: Option<String>,
    pub(super) language: Option<String>,
    pub(super) env_vars: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NewContext {
    pub(super) language: Option<String>,
    pub(super) cwd: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Context {
    id: String,
    language: String,
    cwd: String,
}

impl From<Info> for Context {
    fn from(info: Info) -> Self {
        let cwd = info.cwd.to_string_lossy().into_owned();
        Self { id: info.id, language: info.language, cwd }
    }
}

/// One line of an execution's stream.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Line {
    NumberOfExecutions { execution_count: u64 },
    Stdout { text: String, timestamp: String },
    Stderr { text: String, timestamp: String },
    Result(Box<Shown>),
    Error { name: String, value: String, traceback: String },
    Keepalive,
    EndOfExecution,
}

/// A value by the formats that clients know.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Shown {
    #[serde(flatten)]
    formats: Map<String, Value>,
    /// Formats without a name of their own, by media type.
    extra: Map<String, Value>,
    is_main_result: bool,
}

const FORMATS: [(&str, &str); 12] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
    ("e2b/data", "data"),
    ("e2b/chart", "chart"),
];

impl Line {
    /// The line with its end.
    pub(super) fn render(&self) -> Bytes {
        let mut line = serde_json::to_vec(self).expect("lines hold nothing that JSON cannot");
        line.push(b'\n');
        line.into()
    }

    fn error(name: &str, value: &str, traceback: String) -> Self {
        Self::Error { name: name.to_owned(), value: value.to_owned(), traceback }
    }
}

impl From<Event> for Line {
    fn from(event: Event) -> Self {
        match event {
            Event::Accepted { count } => Self::NumberOfExecutions { execution_count: count },
            Event::Stdout(Text { text, at }) => Self::Stdout { text, timestamp: at },
            Event::Stderr(Text { text, at }) => Self::Stderr { text, timestamp: at },
            Event::Shown { is_main, data } => Self::Result(Box::new(Shown::new(is_main, data))),
            Event::Failed { name, value, traceback } => {
                Self::Error { name, value, traceback: traceback.concat() }
            }
            Event::Died { reason } => {
                Self::error("ContextRestarting", "Context was restarted", reason)
            }
            Event::CutOff => Self::error(
                "UnexpectedEndOfExecution",
                "Connection to the execution was closed before the execution was finished",
                String::new(),
            ),
        }
    }
}

impl Shown {
    fn new(is_main_result: bool, mut data: Map<String, Value>) -> Self {
        let mut formats = Map::new();
        for (media_type, name) in FORMATS {
            match data.remove(media_type) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) if name == "text" => {
                    formats.insert(name.to_owned(), unquoted(&text).into());
                }
                Some(value) => drop(formats.insert(name.to_owned(), value)),
            }
        }
        Self { formats, extra: data, is_main_result }
    }
}

/// A text's outer quotes are how a language shows that it is one.
fn unquoted(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rendered(event: Event) -> Value {
        let line = Line::from(event).render();
        let text = line.strip_suffix(b"\n").unwrap();
        assert!(!text.contains(&b'\n'));
        serde_json::from_slice(text).unwrap()
    }

    #[test]
    fn values_go_by_the_names_that_clients_know() {
        let data = json!({
            "text/plain": "'quoted'",
            "image/png": "aGk=",
            "e2b/chart": {"type": "line"},
            "application/vnd.x": {"a": 1},
            "text/html": null,
        });
        let Value::Object(data) = data else { panic!("an object") };
        let want = json!({
            "type": "result", "text": "quoted", "png": "aGk=", "chart": {"type": "line"},
            "extra": {"application/vnd.x": {"a": 1}}, "is_main_result": true,
        });
        assert_eq!(rendered(Event::Shown { is_main: true, data }), want);
        assert_eq!(unquoted("'a"), "'a");
        assert_eq!(unquoted("'"), "'");
        assert_eq!(unquoted("\"a\""), "a");
    }

    #[test]
    fn errors_and_ends_have_their_known_names() {
        let failed = Event::Failed {
            name: "NameError".to_owned(),
            value: "no".to_owned(),
            traceback: vec!["a\n".to_owned(), "b".to_owned()],
        };
        let want =
            json!({"type": "error", "name": "NameError", "value": "no", "traceback": "a\nb"});
        assert_eq!(rendered(failed), want);
        assert_eq!(rendered(Event::CutOff)["name"], "UnexpectedEndOfExecution");
        let died = rendered(Event::Died { reason: "signal 9".to_owned() });
        assert_eq!(
            (&died["name"], &died["traceback"]),
            (&json!("ContextRestarting"), &json!("signal 9"))
        );
        assert_eq!(&*Line::EndOfExecution.render(), b"{\"type\":\"end_of_execution\"}\n");
        assert_eq!(&*Line::Keepalive.render(), b"{\"type\":\"keepalive\"}\n");
    }
}
