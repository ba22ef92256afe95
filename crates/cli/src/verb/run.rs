//! `atoll run`: a sandbox for one command.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::create::{LOOK_EVERY, Progress};
use super::{create, exec};
use crate::args::Run;
use crate::client::{Client, Command, NewSandbox, Sandbox};
use crate::error::Error;

/// What a shell reports for a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// The label by which a sandbox is found before the server has answered with its id.
const MARK: &str = "atoll-run";

/// Makes, runs, removes; also when interrupted.
pub(super) async fn run(client: &Client, options: Run) -> Result<ExitCode, Error> {
    let mut wish = create::wish(options.shape, Vec::new())?;
    let mark = [(MARK.to_owned(), unique())];
    wish.metadata.extend(mark.clone());
    let mut interruption = Interruption::watch()?;
    let mut progress = Progress::default();
    let made = match create(client, &wish, &mark, &mut interruption, &mut progress).await {
        Ok(Some(made)) => made,
        Ok(None) => return Ok(ExitCode::from(INTERRUPTED)),
        Err(error) => {
            // The server keeps a sandbox that failed to start, so that it can be looked at.
            if let Ok(Some(id)) = find(client, &mark).await {
                client.remove(&id).await.ok();
            }
            return Err(error);
        }
    };
    let id = made.id.clone();
    let command =
        Command { argv: options.command, cwd: None, envs: BTreeMap::new(), timeout: None };
    let work = async {
        let id = create::wait_running(client, made, &mut progress).await?;
        exec::stream(client, &id, &command).await
    };
    let result = tokio::select! {
        result = work => result,
        () = interruption.seen() => Ok(ExitCode::from(INTERRUPTED)),
    };
    if options.keep {
        eprintln!("kept: {id}");
        return result;
    }
    match client.remove(&id).await {
        // It may have ended and gone by itself.
        Ok(()) | Err(Error::Refused { status: 404, .. }) => result,
        Err(error) => {
            eprintln!("sandbox {id} could not be removed; it will expire by itself");
            result.and(Err(error))
        }
    }
}

/// Asks for the sandbox and tells what is being done until the answer is here. An interruption
/// waits for it too, because until then nobody knows what to remove; a second one does not.
/// `None`: interrupted.
async fn create(
    client: &Client,
    wish: &NewSandbox,
    mark: &[(String, String)],
    interruption: &mut Interruption,
    progress: &mut Progress,
) -> Result<Option<Sandbox>, Error> {
    let answer = client.create(wish);
    tokio::pin!(answer);
    loop {
        tokio::select! {
            made = &mut answer => return made.map(Some),
            () = interruption.seen() => break,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        // Only news: whatever is wrong, the answer itself will tell.
        if let Ok(Some(id)) = find(client, mark).await {
            progress.tell(client, &id).await.ok();
        }
    }
    eprintln!("interrupted: removing the sandbox as soon as the server names it");
    tokio::select! {
        made = answer => client.remove(&made?.id).await?,
        () = interruption.seen() => eprintln!("not removed; it will expire by itself"),
    }
    Ok(None)
}

/// The id of the sandbox with this label.
async fn find(client: &Client, mark: &[(String, String)]) -> Result<Option<String>, Error> {
    let found = client.list(&[], mark).await?;
    Ok(found.first().and_then(|sandbox| sandbox["id"].as_str()).map(str::to_owned))
}

/// A word that no other run of this tenant uses.
fn unique() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}p{:x}", since.as_nanos(), std::process::id())
}

/// Ctrl-C and SIGTERM; from `watch` on they no longer end the process by themselves.
struct Interruption {
    interrupt: Signal,
    terminate: Signal,
}

impl Interruption {
    fn watch() -> Result<Self, Error> {
        let watch = |kind| signal(kind).map_err(Error::Signals);
        Ok(Self {
            interrupt: watch(SignalKind::interrupt())?,
            terminate: watch(SignalKind::terminate())?,
        })
    }

    /// Returns at the next one.
    async fn seen(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
