use atoll_guest::{
    Error, Guest, Identity,
    environment::Variables,
    process::{Exit, Launch, Reaper, Wiring},
    ring::Ring,
};
use std::{
    fs, io, os::fd::OwnedFd, os::unix::process::ExitStatusExt, process::ExitStatus, sync::Arc,
    time::Duration,
};
use tokio::{net::unix::pipe::Receiver, task::JoinHandle, time::timeout};

const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
const READ_BYTES: usize = 16 * 1024;
/// Less than commands have: those are killed first when the sandbox runs out of memory.
const OOM_SCORE_ADJUST: &str = "250";
/// How long the log may still be fed after the entrypoint ended.
const DRAIN_GRACE: Duration = Duration::from_millis(100);

/// The sandbox's main program.
#[derive(Debug)]
pub(crate) struct Entrypoint {
    pid: i32,
    exit: Exit,
    pump: JoinHandle<()>,
}

impl Entrypoint {
    /// Starts it with its output going to the log; on failure answers the message and exit code
    /// that a shell would.
    pub(crate) fn start(
        argv: Vec<String>,
        guest: &Guest,
        identity: Option<Identity>,
        reaper: &Reaper,
        log: Arc<Ring>,
    ) -> Result<Self, (String, u8)> {
        let env = guest.environment().compose(identity.as_ref(), &Variables::new());
        let cwd = guest.environment().cwd().to_owned();
        let launch = Launch { argv, env, cwd, identity, wiring: Wiring::Merged };
        let spawned = launch.spawn(reaper).map_err(|error| refusal(&error))?;
        // Its end is the sandbox's.
        fs::write(format!("/proc/{}/oom_score_adj", spawned.pid), OOM_SCORE_ADJUST).ok();
        let pump = tokio::spawn(pump(spawned.stdout, log));
        Ok(Self { pid: spawned.pid, exit: spawned.exit, pump })
    }

    /// Waits for its end; answers its code, 128 and the number for a signal. Safe to cancel.
    pub(crate) async fn ended(&mut self) -> u8 {
        let status = (&mut self.exit).await.unwrap_or_default();
        // What it printed last is worth a moment; a child of it may hold the pipe open.
        timeout(DRAIN_GRACE, &mut self.pump).await.ok();
        exit_code(status)
    }

    /// Asks it to stop, and waits; nothing when it takes longer than `grace`.
    pub(crate) async fn stop(
        &mut self,
        reaper: &Reaper,
        signal: i32,
        grace: Duration,
    ) -> Option<u8> {
        reaper.signal_group(self.pid, signal);
        timeout(grace, self.ended()).await.ok()
    }
}

fn refusal(error: &Error) -> (String, u8) {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    let code = if matches!(error, Error::Missing { .. }) { NOT_FOUND } else { NOT_EXECUTABLE };
    (format!("the entrypoint cannot be started: {error}{}", cause.unwrap_or_default()), code)
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

async fn pump(output: Option<OwnedFd>, log: Arc<Ring>) {
    let Some(pipe) = output.and_then(|fd| Receiver::from_owned_fd(fd).ok()) else { return };
    let mut buffer = vec![0; READ_BYTES];
    while pipe.readable().await.is_ok() {
        match pipe.try_read(&mut buffer) {
            Ok(0) => return,
            // The ring lies in memory, so this does not wait; a failure loses log lines only.
            Ok(count) => drop(log.append(&buffer[..count])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
