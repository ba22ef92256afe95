//! `atoll get`.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::list::seconds;
use crate::args::Output;
use crate::client::{Client, Detail, Sandbox};
use crate::error::Error;
use crate::output::{self, plain};

/// Shows one sandbox with its story.
pub(super) async fn run(client: &Client, id: &str, format: Output) -> Result<ExitCode, Error> {
    match format {
        Output::Json => {
            let (sandbox, detail): (Value, Value) =
                (client.get_json(id).await?, client.detail(id).await?);
            output::json(&json!({"sandbox": sandbox, "detail": detail}))?;
        }
        Output::Table => {
            let (sandbox, detail) = (client.get(id).await?, client.detail(id).await?);
            output::text(&describe(&sandbox, &detail))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(sandbox: &Sandbox, detail: &Detail) -> String {
    let expires = sandbox.expires_at.as_deref().map_or("never".to_owned(), seconds);
    let mut facts = vec![
        ("id", sandbox.id.clone()),
        ("state", sandbox.status.state.clone()),
        ("image", sandbox.source()),
        ("created", seconds(&sandbox.created_at)),
        ("expires", expires),
    ];
    for (key, value) in &sandbox.metadata {
        facts.push(("label", format!("{key}={value}")));
    }
    if let Some(diagnostic) = &detail.diagnostic {
        facts.push(("problem", format!("{} ({})", diagnostic.message, diagnostic.reason)));
        facts.push(("remedy", diagnostic.recommendation.clone()));
    }
    let mut text = String::new();
    for (name, value) in facts {
        writeln!(text, "{name:<9}{}", plain(&value)).expect("writing to a string works");
    }
    text.push_str("\ntimeline\n");
    for entry in &detail.timeline {
        let (at, phase) = (plain(&entry.at), plain(&entry.phase));
        writeln!(text, "  {at}  {phase:<9} {}", plain(&entry.message))
            .expect("writing to a string works");
    }
    text
}
