//! Life as a launcher's child: the inherited descriptors, the entrypoint, and the end.

use crate::{config::Config, defaults, door::Door, entrypoint::Entrypoint, logs, serve, up::Gate};
use anyhow::{Context, Result};
use atoll_guest::{Guest, Options, Role, process::Reaper, ring::Ring, settings::Values, sys};
use std::{fs::File, io::Read, os::fd::OwnedFd, sync::Arc, time::Duration};
use tokio::signal::unix::{SignalKind, signal};

const SOCKET: i32 = 3;
const CONFIG: i32 = 4;
const LOG: i32 = 5;
const CONFIG_BYTES_MAX: u64 = 8 << 20;
const STOP_GRACE: Duration = Duration::from_secs(5);
const REFUSED: u8 = 126;
/// What a shell reports for a program that SIGTERM ended.
const TERMINATED: u8 = 128 + 15;
const SIGTERM: i32 = 15;

/// What a launcher leaves open for the agent.
#[derive(Debug)]
pub(crate) struct Inherited {
    door: Door,
    config: Config,
    log: Option<OwnedFd>,
}

impl Inherited {
    /// Takes the descriptors over, before anything else is opened, and hides them from commands.
    pub(crate) fn take() -> Result<Self> {
        let (socket, config, log) =
            (sys::inherited(SOCKET), sys::inherited(CONFIG), sys::inherited(LOG));
        sys::close_on_exec_all().context("cannot hide descriptors from commands")?;
        let socket = socket.context("descriptor 3 is not open")?;
        let config = read(config.context("descriptor 4 is not open")?)
            .context("cannot use the configuration at descriptor 4")?;
        Ok(Self { door: Door::Socket(socket), config, log })
    }

    /// The same from a launcher that hands over nothing but the standard streams. Nothing stays
    /// there for commands to find.
    pub(crate) fn take_standard() -> Result<Self> {
        let config = sys::inherited(0).context("standard input is not open")?;
        let output = sys::inherited(1).context("standard output is not open")?;
        let log = output.try_clone()?;
        let mut config = read(config).context("cannot use the configuration at standard input")?;
        drop(output);
        for _ in 0..2 {
            // The lowest free numbers are the two just left; there it stays.
            std::mem::forget(File::options().read(true).write(true).open("/dev/null")?);
        }
        let port = config.door.take().context("the configuration has no door")?;
        Ok(Self { door: Door::Port(port), config, log: Some(log) })
    }
}

/// The configuration; its file is closed then.
fn read(source: OwnedFd) -> Result<Config> {
    let mut text = String::new();
    File::from(source).take(CONFIG_BYTES_MAX).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// Serves until the entrypoint ends or the sandbox is told to stop; answers the exit code.
pub(crate) async fn run(inherited: Inherited) -> Result<u8> {
    let Inherited { door, config, log } = inherited;
    let log = logs::open(log).context("cannot use the log ring")?;
    let code = live(door, config, &log).await;
    if let Err(error) = &code {
        logs::note(&log, &format!("{error:#}"));
    }
    sys::kill_everything_else();
    code
}

async fn live(door: Door, config: Config, log: &Arc<Ring>) -> Result<u8> {
    let role = if sys::is_init() { Role::Init } else { Role::Guest };
    // Listen for the end first: a sandbox that is stopped while it starts must stop.
    let mut stop = signal(SignalKind::terminate())?;
    let reaper = Reaper::start(role)?;
    let Values { env, user, workdir } = match defaults::values(config.defaults) {
        Ok(values) => values,
        Err(error) => {
            logs::note(log, &format!("user of sandbox {}: {error:#}", config.id));
            return Ok(REFUSED);
        }
    };
    let options =
        Options { env, cwd: workdir, user: user.clone(), access_token: config.access_token };
    let guest = Guest::with_reaper(reaper.clone(), options);
    let gate = Gate::new(config.ready, config.warm);
    let internal = gate.router().merge(defaults::router(config.key, &guest));
    let server = door.serve(serve::routes(&guest, log).merge(internal)).await;
    let server = server.context("cannot listen")?;
    if config.entrypoint.is_empty() {
        gate.begin(&guest, log);
        tokio::select! {
            _ = stop.recv() => return Ok(0),
            ended = server => return ended?.map(|()| 0).context("the server ended"),
        }
    }
    match Entrypoint::start(config.entrypoint, &guest, user, &reaper, Arc::clone(log)) {
        Ok(mut entrypoint) => {
            gate.begin(&guest, log);
            Ok(tokio::select! {
                code = entrypoint.ended() => code,
                _ = stop.recv() => {
                    entrypoint.stop(&reaper, SIGTERM, STOP_GRACE).await.unwrap_or(TERMINATED)
                }
            })
        }
        Err((message, code)) => {
            logs::note(log, &message);
            Ok(code)
        }
    }
}
