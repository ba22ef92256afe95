use atoll_guest::kernel::Info;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Deserialize)]
pub(super) struct NewContext {
    pub(super) language: Option<String>,
    pub(super) cwd: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Context {
    id: String,
    language: String,
}

impl From<Info> for Context {
    fn from(info: Info) -> Self {
        Self { id: info.id, language: info.language }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Run {
    pub(super) code: Option<String>,
    pub(super) context: Option<RunContext>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct RunContext {
    pub(super) id: Option<String>,
    pub(super) language: Option<String>,
}

/// One event of a run of code.
#[derive(Debug, Serialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(flatten)]
    pub(super) content: Content<'a>,
    /// Unix time in milliseconds; clients drop events without one.
    pub(super) timestamp: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Content<'a> {
    Text(&'a str),
    ExecutionCount(u64),
    ExecutionTime(u64),
    Results(Map<String, Value>),
    Error(EventError),
}

#[derive(Debug, Serialize)]
pub(super) struct EventError {
    pub(super) ename: String,
    pub(super) evalue: String,
    pub(super) traceback: Vec<String>,
}

/// A value as clients of this contract read it: texts by media type, and the plain one twice.
pub(super) fn results(data: Map<String, Value>) -> Map<String, Value> {
    let texts = data.into_iter().map(|(media_type, value)| match value {
        Value::String(text) => (media_type, Value::String(text)),
        other => (media_type, Value::String(other.to_string())),
    });
    let mut results: Map<String, Value> = texts.collect();
    if let Some(plain) = results.get("text/plain").cloned() {
        results.insert("text".to_owned(), plain);
    }
    results
}
