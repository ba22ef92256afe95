//! A server of our own for tests and measurements: started, waited for, stopped by its pid.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::http::Client;
use crate::programs::Programs;

/// How long a server may take to answer, and to stop.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running `atoll serve`.
pub struct Server {
    child: Child,
    log: PathBuf,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Server {
    /// Starts a server with this configuration in `folder` and waits until it is ready.
    pub fn start(programs: &Programs, folder: &Path, config: &str) -> Result<Self> {
        let config_path = folder.join("atoll.toml");
        std::fs::write(&config_path, config).context("can't write the server's configuration")?;
        let log = folder.join("server.log");
        let file = File::create(&log).context("can't create the server's log")?;
        let mut serve = Command::new(&programs.atoll);
        serve.args(["serve", "--listen", "127.0.0.1:0"]).stdin(Stdio::null());
        serve.arg("--config").arg(&config_path).arg("--data-dir").arg(folder.join("data"));
        serve.env("ATOLL_AGENT", &programs.agent).env_remove("ATOLL_API_KEY");
        let child = serve.stdout(file.try_clone()?).stderr(file).spawn();
        let child = child.with_context(|| format!("can't start {}", programs.atoll.display()))?;
        let mut server = Self { child, log, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        server.wait_ready()?;
        Ok(server)
    }

    /// The base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The newest lines of its log.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Asks it to stop and waits for it.
    pub fn stop(mut self) -> Result<()> {
        self.terminate()?;
        let status = self.wait_exit()?;
        if !status.success() {
            bail!("the server ended with {status}:\n{}", self.log_tail());
        }
        Ok(())
    }

    /// Ends it without a chance to tidy up, as a crash would.
    pub fn crash(mut self) -> Result<()> {
        self.child.kill().context("can't kill the server")?;
        self.child.wait().context("can't wait for the killed server").map(drop)
    }

    fn terminate(&self) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.context("the server has no pid")?;
        kill_process(pid, Signal::TERM).context("can't stop the server")
    }

    fn wait_exit(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        bail!("the server did not stop within {PATIENCE:?}:\n{}", self.log_tail())
    }

    fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}:\n{}", self.log_tail());
            }
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            if let Some(address) = address_in(&log) {
                let ready = Client::new(address, &[]).send("GET", "/readyz", "", &[]);
                if ready.is_ok_and(|answer| answer.status == 200) {
                    self.address = address;
                    return Ok(());
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        bail!("the server was not ready within {PATIENCE:?}:\n{}", self.log_tail())
    }
}

impl Drop for Server {
    /// A server that `stop` has not seen off would outlive a failed run.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None))
            && (self.terminate().is_err() || self.wait_exit().is_err())
        {
            self.child.kill().and_then(|()| self.child.wait()).ok();
        }
    }
}

/// The address in the first line that names our URL.
fn address_in(log: &str) -> Option<SocketAddr> {
    let (_, rest) = log.split_once("http://127.0.0.1:")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    // A line that is only half written must not yield half a port.
    let whole = rest.len() > digits.len();
    whole
        .then(|| digits.parse().ok())
        .flatten()
        .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
}

#[cfg(test)]
mod tests {
    use super::address_in;

    #[test]
    fn the_address_is_read_from_a_whole_line() {
        let address = address_in("x\n  URL   http://127.0.0.1:4711\n").unwrap();
        assert_eq!(address.port(), 4711);
        assert_eq!(address_in("URL http://127.0.0.1:47"), None);
    }
}
