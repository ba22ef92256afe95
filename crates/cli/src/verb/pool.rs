//! `atoll pool`.

use std::process::ExitCode;

use serde_json::Value;

use crate::args::{Output, PoolVerb};
use crate::client::{Client, PoolRow};
use crate::error::Error;
use crate::output;

/// Declares, lists or forgets warm pools.
pub(super) async fn run(
    client: &Client,
    verb: PoolVerb,
    format: Output,
) -> Result<ExitCode, Error> {
    match verb {
        PoolVerb::Set { name, template, size } => {
            let template = template.as_ref().unwrap_or(&name);
            let pool = client.set_pool(&name, template, size).await?;
            match format {
                Output::Json => output::json(&pool)?,
                Output::Table => output::text(&format!("{name}\n"))?,
            }
        }
        PoolVerb::Ls => {
            let pools = client.pools().await?;
            match format {
                Output::Json => output::json(&Value::Array(pools))?,
                Output::Table => output::text(&table(pools)?)?,
            }
        }
        PoolVerb::Rm { name } => {
            client.remove_pool(&name).await?;
            output::text(&format!("{name}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(pools: Vec<Value>) -> Result<String, Error> {
    let row = |value: Value| -> Result<Vec<String>, Error> {
        let pool: PoolRow = serde_json::from_value(value).map_err(|error| Error::Garbled {
            request: "GET /atoll/v1/pools".to_owned(),
            why: error.to_string(),
        })?;
        let numbers = [pool.size, pool.ready, pool.starting, pool.waiting, pool.hits, pool.misses];
        let numbers = numbers.iter().map(u64::to_string);
        let words = [pool.name, pool.template.unwrap_or_default()];
        let cells = words.into_iter().chain(numbers).chain([pool.trouble.unwrap_or_default()]);
        Ok(cells.map(|cell| output::plain(&cell)).collect())
    };
    let rows = pools.into_iter().map(row).collect::<Result<Vec<_>, Error>>()?;
    let headings =
        ["NAME", "TEMPLATE", "SIZE", "READY", "STARTING", "WAITING", "HITS", "MISSES", "TROUBLE"];
    Ok(output::table(&headings, &rows))
}
