//! The verbs of a client, one file each.

mod copy;
mod create;
mod exec;
mod get;
mod list;
mod logs;
mod many;
mod pairs;
mod pool;
mod run;

use std::process::ExitCode;

use crate::args::{Connection, Output, Verb};
use crate::client::Client;
use crate::error::Error;
use crate::serve;

/// Does what was asked.
pub(crate) async fn run(
    verb: Verb,
    connection: &Connection,
    output: Output,
) -> Result<ExitCode, Error> {
    let data_dir = connection.data_dir.clone().unwrap_or_else(serve::default_data_dir);
    let client = Client::new(&connection.url, connection.api_key.clone(), &data_dir)?;
    match verb {
        Verb::Run(options) => run::run(&client, options).await,
        Verb::Create(options) => create::run(&client, options, output).await,
        Verb::Ls(options) => list::run(&client, &options, output).await,
        Verb::Get { id } => get::run(&client, &id, output).await,
        Verb::Exec(options) => exec::run(&client, options).await,
        Verb::Logs { id, tail } => logs::run(&client, &id, tail).await,
        Verb::Cp { from, to } => copy::run(&client, &from, &to).await,
        Verb::Pause(ids) => many::change(&client, &ids.ids, "pause").await,
        Verb::Resume(ids) => many::change(&client, &ids.ids, "resume").await,
        Verb::Rm(ids) => many::remove(&client, &ids.ids).await,
        Verb::Pool(verb) => pool::run(&client, verb, output).await,
    }
}
