//! Atoll over HTTP, exactly as an SDK drives it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::series::Series;
use atoll_e2e::http::Client;
use atoll_e2e::server::Server;

/// The image with the same files that the OCI runtimes run.
const SAME_FILES: &str = "bench";
/// The image that everybody has.
const BASE: &str = "base";

/// The measured server is what an operator gets who configures nothing but an image.
pub(super) fn config(layout: &Path, interpreter: &Path) -> String {
    format!(
        "[images.aliases]\n{SAME_FILES} = \"oci:{}\"\n[code_interpreter]\nfolder = \"{}\"\n",
        layout.display(),
        interpreter.display()
    )
}

/// What `life` measures, in the order of its series.
pub(super) const LIFE: &[&str] = &[
    "create -> first command done",
    "create",
    "exec round trip",
    "pause",
    "resume",
    "delete",
    "base: create -> first command done",
    "base: exec round trip",
];

const READY_WITHIN: Duration = Duration::from_secs(60);

/// A client of the measured server.
pub(super) struct Atoll {
    address: SocketAddr,
    key: String,
    client: Client,
}

/// A sandbox and where its agent answers.
struct Made {
    id: String,
    agent: String,
}

impl Atoll {
    pub(super) fn connect(server: &Server, folder: &Path) -> Result<Self> {
        let key = std::fs::read_to_string(folder.join("data/api-key"))
            .context("the server has written no api-key")?;
        let key = key.trim().to_owned();
        let headers = [("OPEN-SANDBOX-API-KEY", key.as_str()), ("X-API-Key", &key)];
        let client = Client::new(server.address, &headers);
        Ok(Self { address: server.address, key, client })
    }

    fn another(&self) -> Client {
        Client::new(self.address, &[("OPEN-SANDBOX-API-KEY", &self.key)])
    }

    /// The client itself, for other ways to drive the server.
    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// One sandbox from create to delete.
    pub(super) fn life(&mut self, series: &mut [Series]) -> Result<()> {
        let client = &mut self.client;
        let start = Instant::now();
        let made = series[1].time(|| create(client, SAME_FILES))?;
        exec(client, &made, "true")?;
        series[0].push(start.elapsed());
        series[2].time(|| exec(client, &made, "true"))?;
        let path = format!("/v1/sandboxes/{}", made.id);
        series[3].time(|| change(client, &made.id, "pause", "Paused"))?;
        series[4].time(|| change(client, &made.id, "resume", "Running"))?;
        series[5].time(|| client.json("DELETE", &path, None))?;
        let start = Instant::now();
        let made = create(client, BASE)?;
        exec(client, &made, "true")?;
        series[6].push(start.elapsed());
        series[7].time(|| exec(client, &made, "true"))?;
        client.json("DELETE", &format!("/v1/sandboxes/{}", made.id), None).map(drop)
    }

    /// `count` sandboxes asked for in the same moment.
    pub(super) fn burst(&mut self, count: usize) -> Result<Vec<Series>> {
        let made = Mutex::new(Vec::new());
        let mut clients: Vec<Client> = (0..count).map(|_| self.another()).collect();
        // Connections are made before the clock starts, as a pool of clients would have them.
        for client in &mut clients {
            client.json("GET", "/health", None)?;
        }
        let start = Instant::now();
        let one = |client: &mut Client| -> Result<Duration> {
            let sandbox = create(client, SAME_FILES)?;
            exec(client, &sandbox, "true")?;
            let took = start.elapsed();
            made.lock().expect("no thread panicked").push(sandbox.id);
            Ok(took)
        };
        let times: Vec<Result<Duration>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                clients.iter_mut().map(|client| scope.spawn(|| one(client))).collect();
            threads.into_iter().map(|t| t.join().expect("no thread panicked")).collect()
        });
        let mut all = Series::new(&format!("burst of {count}: all done"));
        all.push(start.elapsed());
        let mut each = Series::new(&format!("burst of {count}: create -> first command"));
        for time in times {
            each.push(time?);
        }
        self.remove_all()?;
        Ok(vec![all, each])
    }

    /// Calls into a sandbox while a long command runs in it.
    pub(super) fn busy(&mut self, calls: usize) -> Result<Vec<Series>> {
        let made = create(&mut self.client, SAME_FILES)?;
        let mut long = self.another();
        let agent = made.agent.clone();
        let body = json!({"command": "echo started > /tmp/started; sleep 60"}).to_string();
        let waiting = std::thread::spawn(move || {
            long.send("POST", &format!("{agent}/command"), "application/json", body.as_bytes())
        });
        let deadline = Instant::now() + READY_WITHIN;
        while exec(&mut self.client, &made, "test -e /tmp/started").is_err() {
            ensure!(Instant::now() < deadline, "the long command did not start");
        }
        let mut commands = Series::new("exec beside a 60-s command");
        let mut pings = Series::new("GET /ping beside a 60-s command");
        let ping = format!("{}/ping", made.agent);
        for _ in 0..calls {
            commands.time(|| exec(&mut self.client, &made, "true"))?;
            pings.time(|| self.client.json("GET", &ping, None))?;
        }
        self.client.json("DELETE", &format!("/v1/sandboxes/{}", made.id), None)?;
        // The stream ends with the sandbox; how it ends is not what is measured.
        waiting.join().expect("the waiting thread does not panic").ok();
        Ok(vec![commands, pings])
    }

    /// Makes `count` sandboxes and returns their ids.
    pub(super) fn hold(&mut self, count: usize) -> Result<Vec<String>> {
        (0..count).map(|_| create(&mut self.client, BASE).map(|made| made.id)).collect()
    }

    /// Removes every sandbox of the measured server.
    pub(super) fn remove_all(&mut self) -> Result<()> {
        loop {
            let list = self.client.json("GET", "/v1/sandboxes?pageSize=200", None)?;
            let items = list["items"].as_array().context("the list has no items")?;
            if items.is_empty() {
                return Ok(());
            }
            for item in items {
                let id = item["id"].as_str().context("a sandbox without an id")?;
                self.client.json("DELETE", &format!("/v1/sandboxes/{id}"), None)?;
            }
        }
    }
}

fn create(client: &mut Client, image: &str) -> Result<Made> {
    let wish = json!({
        "image": {"uri": image},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": {"cpu": "1", "memory": "256Mi"},
        "timeout": 600,
    });
    let made = client.json("POST", "/v1/sandboxes", Some(&wish))?;
    let id = made["id"].as_str().context("the created sandbox has no id")?.to_owned();
    if made["status"]["state"] != "Running" {
        wait_for(client, &id, "Running")?;
    }
    let path = format!("/v1/sandboxes/{id}/endpoints/44772?use_server_proxy=false");
    let endpoint = client.json("GET", &path, None)?;
    let endpoint = endpoint["endpoint"].as_str().context("no endpoint")?;
    let agent = endpoint.split_once('/').map(|(_, path)| format!("/{path}"));
    Ok(Made { id, agent: agent.context("the endpoint is not behind the server")? })
}

fn exec(client: &mut Client, made: &Made, command: &str) -> Result<()> {
    let body = json!({"command": command}).to_string();
    let path = format!("{}/command", made.agent);
    let answer = client.send("POST", &path, "application/json", body.as_bytes())?;
    ensure!(answer.status == 200, "{command}: {}", answer.explain());
    let complete = String::from_utf8_lossy(&answer.body).contains("execution_complete");
    ensure!(complete, "{command}: {}", answer.explain());
    Ok(())
}

/// The call and the state it leads to, since the call itself may answer earlier.
fn change(client: &mut Client, id: &str, verb: &str, state: &str) -> Result<()> {
    client.json("POST", &format!("/v1/sandboxes/{id}/{verb}"), None)?;
    wait_for(client, id, state)
}

fn wait_for(client: &mut Client, id: &str, state: &str) -> Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let sandbox: Value = client.json("GET", &format!("/v1/sandboxes/{id}"), None)?;
        let status = &sandbox["status"];
        if status["state"] == state {
            return Ok(());
        }
        ensure!(status["state"] != "Failed", "sandbox {id} failed: {status}");
        ensure!(Instant::now() < deadline, "sandbox {id} is {status}, not {state}");
    }
}
