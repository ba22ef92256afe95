//! `atoll ls`.

use std::process::ExitCode;

use serde_json::Value;

use super::pairs;
use crate::args::{List, Output};
use crate::client::{Client, Sandbox};
use crate::error::Error;
use crate::output;

/// Lists sandboxes, newest first.
pub(super) async fn run(
    client: &Client,
    options: &List,
    format: Output,
) -> Result<ExitCode, Error> {
    let found = client.list(&options.state, &pairs::labels(&options.label)?).await?;
    match format {
        Output::Json => output::json(&Value::Array(found))?,
        Output::Table => {
            let rows: Result<Vec<_>, Error> = found.into_iter().map(row).collect();
            let headings = ["ID", "STATE", "IMAGE", "CREATED", "EXPIRES", "LABELS"];
            output::text(&output::table(&headings, &rows?))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(value: Value) -> Result<Vec<String>, Error> {
    let sandbox: Sandbox = serde_json::from_value(value).map_err(|error| Error::Garbled {
        request: "GET /v1/sandboxes".to_owned(),
        why: error.to_string(),
    })?;
    let labels = sandbox.metadata.iter().map(|(key, value)| format!("{key}={value}"));
    let labels = labels.collect::<Vec<_>>().join(",");
    let source = sandbox.source();
    let expires = sandbox.expires_at.as_deref().map_or("never".to_owned(), seconds);
    let cells =
        [sandbox.id, sandbox.status.state, source, seconds(&sandbox.created_at), expires, labels];
    Ok(cells.iter().map(|cell| output::plain(cell)).collect())
}

/// A time without its fractions; text that is none stays as it is.
pub(super) fn seconds(time: &str) -> String {
    match time.parse::<jiff::Timestamp>() {
        Ok(time) => format!("{time:.0}"),
        Err(_) => time.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn fractions_are_left_out() {
        assert_eq!(seconds("2026-01-02T03:04:05.678901Z"), "2026-01-02T03:04:05Z");
        assert_eq!(seconds("soon"), "soon");
    }
}
