//! The default network: through the host. Here "the host" is a network namespace in which the
//! server runs, with another one as the world beyond it, so that no packet leaves this machine.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use atoll_e2e::greeter::{self, GREETING, Greeter};
use atoll_e2e::leftovers;
use atoll_e2e::programs::Programs;
use atoll_e2e::world::{FakeInternet, KEY, ip};

const PORT: u16 = 8000;
const WORLD: &str = "93.184.216.34";
const HOST: &str = "203.0.113.1";
const GATEWAY: &str = "203.0.113.2";

/// A process that ends with the test.
struct Ends(Child);

impl Ends {
    /// Starts it and waits until it has printed a line that contains `mark`.
    fn start(command: &mut Command, mark: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let seen = output.lines().map_while(Result::ok).any(|line| line.contains(mark));
        assert!(seen, "it never said {mark:?}");
        Self(child)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        let asked =
            pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
        assert!(asked.is_some_and(|asked| asked.is_ok()), "it can't be ended");
        self.0.wait().expect("it ends");
    }
}

#[test]
fn sandboxes_reach_the_world_through_the_host_but_not_the_host() {
    let programs = Programs::from_env().expect("the programs");
    let folder = tempfile::tempdir().expect("a folder");
    let host = FakeInternet::new("host", &[]).expect("a host");
    let world = FakeInternet::new("world", &[WORLD]).expect("a world");
    host.connect(&world, ("h0", HOST), ("w0", GATEWAY)).expect("a cable");
    ip(&["-n", host.name(), "route", "add", "default", "via", GATEWAY]).expect("a route");
    let greet = |place| Greeter::start(place, PORT).expect("a service");
    let _greeters = (greet(&host), greet(&world));

    let config = folder.path().join("atoll.toml");
    let text = format!(
        "data_dir = \"{}\"\n[[tenants]]\nname = \"tests\"\nkeys = [\"{KEY}\"]\n\
         [runtime]\nagent = \"{}\"\n[runtime.network]\nresolvers = [\"10.255.255.53\"]\n",
        folder.path().join("data").display(),
        programs.agent.display()
    );
    std::fs::write(&config, text).expect("a configuration");
    let atoll = programs.atoll.to_str().expect("a path");
    let mut serve = host.command(atoll);
    serve.args(["serve", "--listen", "127.0.0.1:8099", "--config"]).arg(&config);
    let server = Ends::start(serve.stderr(Stdio::null()), "listens on");

    let run = |command: &str| -> String {
        let mut client = host.command(atoll);
        client.args(["run", "base", "--", "sh", "-c", command]);
        client.env("ATOLL_URL", "http://127.0.0.1:8099").env("ATOLL_API_KEY", KEY);
        let output = client.output().expect("the client runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let reaches = |address: &str| {
        let visit = greeter::visit(address, PORT);
        run(&format!("/usr/bin/python3 -c '{visit}'")).contains(GREETING)
    };
    assert!(reaches(WORLD), "the world is reached");
    assert!(!reaches(HOST), "the host at its own public address is not");
    assert!(!reaches("10.231.255.253"), "nor at the end of the sandboxes' cable");
    let tables = host.command("nft").args(["list", "tables"]).output().expect("nft runs");
    assert!(String::from_utf8_lossy(&tables.stdout).contains("atoll"), "the host has its rules");

    drop(server);
    leftovers::none(&folder.path().join("data")).expect("nothing is left");
    let tables = host.command("nft").args(["list", "tables"]).output().expect("nft runs");
    assert_eq!(String::from_utf8_lossy(&tables.stdout), "", "the host's rules are gone");
}
