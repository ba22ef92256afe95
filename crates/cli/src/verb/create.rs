//! `atoll create`, and the making of sandboxes that `run` shares.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use super::pairs;
use crate::args::{Create, Output, Shape};
use crate::client::{Client, Detail, NewSandbox, Sandbox};
use crate::error::Error;
use crate::output;

/// How often the timeline is read while a sandbox is being made.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(300);
/// States from which a sandbox may still become Running.
const ON_THE_WAY: &[&str] = &["Pending", "Resuming"];

/// Makes a sandbox and prints its id.
pub(super) async fn run(
    client: &Client,
    options: Create,
    format: Output,
) -> Result<ExitCode, Error> {
    let made = client.create(&wish(options.shape, options.entrypoint)?).await?;
    let id = wait_running(client, made, &mut Progress::default()).await?;
    match format {
        Output::Table => output::text(&format!("{id}\n"))?,
        Output::Json => output::json(&client.get_json(&id).await?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The wish that the options describe.
pub(super) fn wish(shape: Shape, entrypoint: Vec<String>) -> Result<NewSandbox, Error> {
    let idle = || ["tail", "-f", "/dev/null"].map(str::to_owned).to_vec();
    Ok(NewSandbox {
        env: pairs::variables(&shape.env)?,
        metadata: pairs::labels(&shape.label)?.into_iter().collect(),
        image: shape.image.into(),
        entrypoint: if entrypoint.is_empty() { idle() } else { entrypoint },
        resource_limits: BTreeMap::from([("cpu", shape.cpu), ("memory", shape.memory)]),
        timeout: (shape.timeout > 0).then_some(shape.timeout),
    })
}

/// Waits until it runs, telling on stderr what is being done meanwhile; its id.
pub(super) async fn wait_running(
    client: &Client,
    mut sandbox: Sandbox,
    progress: &mut Progress,
) -> Result<String, Error> {
    while ON_THE_WAY.contains(&sandbox.status.state.as_str()) {
        progress.tell(client, &sandbox.id).await?;
        tokio::time::sleep(LOOK_EVERY).await;
        sandbox = client.get(&sandbox.id).await?;
    }
    if sandbox.status.state == "Running" {
        return Ok(sandbox.id);
    }
    let (state, message) = (sandbox.status.state, output::plain(&sandbox.status.message));
    Err(Error::Sandbox { id: sandbox.id, state, message })
}

/// How much of a sandbox's timeline has been told.
#[derive(Default)]
pub(super) struct Progress(usize);

impl Progress {
    /// Tells what is new. The oldest entries may have made room; nothing is told twice then.
    pub(super) async fn tell(&mut self, client: &Client, id: &str) -> Result<(), Error> {
        let detail: Detail = client.detail(id).await?;
        for entry in detail.timeline.iter().skip(self.0) {
            eprintln!("{}: {}", output::plain(&entry.phase), output::plain(&entry.message));
        }
        self.0 = detail.timeline.len();
        Ok(())
    }
}
