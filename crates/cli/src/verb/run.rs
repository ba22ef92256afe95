//! `atoll run`: a sandbox for one command.

use std::collections::BTreeMap;
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{create, exec};
use crate::args::Run;
use crate::client::{Client, Command, NewSandbox, Sandbox};
use crate::error::Error;

/// What a shell reports for a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Makes, runs, removes; also when interrupted.
pub(super) async fn run(client: &Client, options: Run) -> Result<ExitCode, Error> {
    let wish = create::wish(options.shape, Vec::new())?;
    let mut interruption = Interruption::watch()?;
    let Some(made) = create(client, &wish, &mut interruption).await? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let id = made.id.clone();
    let command =
        Command { argv: options.command, cwd: None, envs: BTreeMap::new(), timeout: None };
    let work = async {
        let id = create::wait_running(client, made).await?;
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

/// Asks for the sandbox. An interruption waits for the answer, because until it is here nobody
/// knows what to remove; a second one does not. `None`: interrupted, and nothing is left.
async fn create(
    client: &Client,
    wish: &NewSandbox,
    interruption: &mut Interruption,
) -> Result<Option<Sandbox>, Error> {
    let answer = client.create(wish);
    tokio::pin!(answer);
    tokio::select! {
        made = &mut answer => return made.map(Some),
        () = interruption.seen() => {}
    }
    eprintln!("interrupted: removing the sandbox as soon as the server names it");
    tokio::select! {
        made = answer => client.remove(&made?.id).await?,
        () = interruption.seen() => eprintln!("not removed; it will expire by itself"),
    }
    Ok(None)
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
