//! A server with its folder, and its key; and a network of fake hosts for its sandboxes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
use tempfile::TempDir;

use crate::http::Client;
use crate::leftovers;
use crate::programs::{self, Programs};
use crate::server::Server;

/// The tests' API key.
pub const KEY: &str = "e2b_0123456789abcdef0123456789abcdef01234567";

/// A folder in which servers come and go.
pub struct World {
    folder: TempDir,
    programs: Programs,
    config: String,
    /// TOML of its own table.
    interpreter: String,
}

impl World {
    /// A new folder; `config` is TOML added to the configuration's top.
    pub fn new(config: &str) -> Result<Self> {
        Ok(Self {
            folder: tempfile::Builder::new().prefix("atoll-e2e-").tempdir()?,
            programs: Programs::from_env()?,
            config: config.to_owned(),
            interpreter: "build = false\n".to_owned(),
        })
    }

    /// The same with the code interpreter that `cargo xtask test` has built.
    pub fn with_interpreter(config: &str) -> Result<Self> {
        let folder = programs::interpreter_folder()?;
        let mut world = Self::new(config)?;
        world.interpreter.push_str(&format!("folder = \"{}\"\n", folder.display()));
        Ok(world)
    }

    /// A server on this folder.
    pub fn serve(&self) -> Result<Server> {
        let config = format!(
            "{}\n[code_interpreter]\n{}\
             [[tenants]]\nname = \"tests\"\nkeys = [\"{KEY}\"]\n",
            self.config, self.interpreter
        );
        Server::start(&self.programs, self.folder.path(), &config)
    }

    /// The servers' data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The programs under test.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The whole folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process that this world's sandboxes are children of.
    pub fn spawner(&self) -> Option<Pid> {
        let name = self.data().display().to_string();
        let processes = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
        let pids = processes.filter_map(|p| p.file_name().to_str()?.parse::<i32>().ok());
        let mut spawners = pids.filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("\0spawner\0") && line.contains(&name)
        });
        spawners.next().and_then(Pid::from_raw)
    }

    /// Stops the server and makes sure that nothing is left.
    pub fn end(&self, server: Server) -> Result<()> {
        server.stop()?;
        leftovers::none(&self.data())
    }
}

impl Drop for World {
    /// A test that failed half-way has left sandboxes.
    fn drop(&mut self) {
        leftovers::sweep(&self.data());
    }
}

/// A client with the tests' key.
pub fn client(server: &Server) -> Client {
    client_of(server.address)
}

/// A client of whoever listens there, with the tests' key in every door's header.
pub fn client_of(address: SocketAddr) -> Client {
    Client::new(address, &[("OPEN-SANDBOX-API-KEY", KEY), ("X-API-Key", KEY)])
}

/// A network namespace of fake hosts: the only thing that tests' sandboxes can reach.
pub struct FakeInternet {
    name: String,
}

impl FakeInternet {
    /// A namespace whose loopback has these addresses.
    pub fn new(label: &str, addresses: &[&str]) -> Result<Self> {
        let internet = Self { name: format!("atoll-{label}-{}", std::process::id()) };
        ip(&["netns", "add", &internet.name])?;
        ip(&["-n", &internet.name, "link", "set", "lo", "up"])?;
        for address in addresses {
            ip(&["-n", &internet.name, "addr", "add", &format!("{address}/32"), "dev", "lo"])?;
        }
        Ok(internet)
    }

    /// Lays a cable to another namespace; each end has a name and an address of a shared /24.
    pub fn connect(&self, other: &Self, here: (&str, &str), there: (&str, &str)) -> Result<()> {
        let ends = ["name", there.0, "netns", &other.name];
        ip(&[&["-n", &self.name, "link", "add", here.0, "type", "veth", "peer"], &ends[..]]
            .concat())?;
        for (namespace, (end, address)) in [(self, here), (other, there)] {
            let address = format!("{address}/24");
            ip(&["-n", &namespace.name, "addr", "add", &address, "dev", end])?;
            ip(&["-n", &namespace.name, "link", "set", end, "up"])?;
        }
        Ok(())
    }

    /// Its name, as `ip` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its path, for the server's configuration.
    pub fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    /// A program run on the fake hosts.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg(program);
        command
    }
}

impl Drop for FakeInternet {
    fn drop(&mut self) {
        if let Err(error) = ip(&["netns", "del", &self.name]) {
            eprintln!("the fake internet {} stays: {error:#}", self.name);
        }
    }
}

/// Runs `ip` with these words.
pub fn ip(words: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(words).output().context("can't run ip")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "ip {}: {}", words.join(" "), said.trim());
    Ok(())
}
