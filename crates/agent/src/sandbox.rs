//! Life as a launcher's child: the inherited descriptors, the entrypoint, and the end.

use crate::{config::Config, entrypoint::Entrypoint, logs};
use anyhow::{Context, Result};
use atoll_guest::{Guest, Options, Role, accounts::Accounts, process::Reaper, ring::Ring, sys};
use std::{
    fs::File,
    io::Read,
    os::{fd::OwnedFd, unix::net::UnixListener as StdListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::UnixListener,
    signal::unix::{SignalKind, signal},
};

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
    socket: OwnedFd,
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
        let mut text = String::new();
        let source = File::from(config.context("descriptor 4 is not open")?);
        source
            .take(CONFIG_BYTES_MAX)
            .read_to_string(&mut text)
            .context("cannot read descriptor 4")?;
        let config = serde_json::from_str(&text).context("the configuration is not valid")?;
        Ok(Self { socket, config, log })
    }
}

/// Serves until the entrypoint ends or the sandbox is told to stop; answers the exit code.
pub(crate) async fn run(inherited: Inherited) -> Result<u8> {
    let Inherited { socket, config, log } = inherited;
    let log = logs::open(log).context("cannot use the log ring")?;
    let code = live(socket, config, &log).await;
    if let Err(error) = &code {
        logs::note(&log, &format!("{error:#}"));
    }
    sys::kill_everything_else();
    code
}

async fn live(socket: OwnedFd, config: Config, log: &Arc<Ring>) -> Result<u8> {
    let role = if sys::is_init() { Role::Init } else { Role::Guest };
    // Listen for the end first: a sandbox that is stopped while it starts must stop.
    let mut stop = signal(SignalKind::terminate())?;
    let reaper = Reaper::start(role)?;
    let user = match config.user.as_deref().map(|user| Accounts::load().resolve(user)).transpose() {
        Ok(user) => user,
        Err(error) => {
            logs::note(log, &format!("user of sandbox {}: {error}", config.id));
            return Ok(REFUSED);
        }
    };
    let options = Options {
        env: config.env,
        cwd: config.cwd.map(PathBuf::from),
        user: user.clone(),
        access_token: config.access_token,
    };
    // Commands that start where the agent is start faster. A directory that does not exist is
    // reported by the first command that wants it.
    std::env::set_current_dir(options.cwd.as_deref().unwrap_or(Path::new("/"))).ok();
    let guest = Guest::with_reaper(reaper.clone(), options);
    let listener = StdListener::from(socket);
    listener.set_nonblocking(true)?;
    let app =
        atoll_opensandbox::guest::router(Arc::clone(&guest)).merge(logs::router(Arc::clone(log)));
    let serving = axum::serve(UnixListener::from_std(listener)?, app);
    let server = tokio::spawn(async move { serving.await });
    if config.entrypoint.is_empty() {
        tokio::select! {
            _ = stop.recv() => return Ok(0),
            ended = server => return ended?.map(|()| 0).context("the server ended"),
        }
    }
    match Entrypoint::start(config.entrypoint, &guest, user, &reaper, Arc::clone(log)) {
        Ok(mut entrypoint) => Ok(tokio::select! {
            code = entrypoint.ended() => code,
            _ = stop.recv() => {
                entrypoint.stop(&reaper, SIGTERM, STOP_GRACE).await.unwrap_or(TERMINATED)
            }
        }),
        Err((message, code)) => {
            logs::note(log, &message);
            Ok(code)
        }
    }
}
