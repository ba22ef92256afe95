//! `kill -9` at any moment: sandboxes still answer or are gone, and nothing is left behind.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use atoll_e2e::http::Client;
use atoll_e2e::sandbox;
use atoll_e2e::world::{KEY, World, client};
use atoll_testkit::Seeded;
use serde_json::{Value, json};

const ROUNDS: u64 = 25;
const CLIENTS: u64 = 4;
const CONFIG: &str = "[runtime.network]\nuplink = \"none\"\n";

/// What the clients were told.
#[derive(Default)]
struct Told {
    created: Mutex<HashSet<String>>,
    /// Deleting was asked for; whether it was confirmed is another set.
    doomed: Mutex<HashSet<String>>,
    deleted: Mutex<HashSet<String>>,
}

/// Makes, pauses, resumes and deletes sandboxes until the server is gone.
fn trouble(address: SocketAddr, seed: u64, told: &Told, over: &AtomicBool, requests: &AtomicUsize) {
    let mut random = Seeded::new(seed);
    let mut client = Client::new(address, &[("OPEN-SANDBOX-API-KEY", KEY)]);
    let mut mine: Vec<String> = Vec::new();
    let body = json!({
        "image": { "uri": "base" }, "entrypoint": ["sleep", "infinity"], "timeout": 3600,
        "resourceLimits": { "cpu": "1", "memory": "128Mi" },
    });
    while !over.load(Ordering::Relaxed) {
        let pick = random.below(10);
        requests.fetch_add(1, Ordering::Relaxed);
        let at = usize::try_from(random.below(mine.len().max(1) as u64)).expect("an index");
        match (pick, mine.get(at).cloned()) {
            (0..=3, _) | (_, None) => {
                let Ok(made) = client.json("POST", "/v1/sandboxes", Some(&body)) else { continue };
                let id = made["id"].as_str().expect("an id").to_owned();
                told.created.lock().expect("no thread panicked").insert(id.clone());
                mine.push(id);
            }
            (4..=6, Some(id)) => {
                told.doomed.lock().expect("no thread panicked").insert(id.clone());
                if sandbox::remove(&mut client, &id).is_ok() {
                    told.deleted.lock().expect("no thread panicked").insert(id.clone());
                }
                mine.swap_remove(at);
            }
            (pick, Some(id)) => {
                let verb = if pick % 2 == 0 { "pause" } else { "resume" };
                // A refusal (already paused) is as good as a yes here.
                let _either = client.json("POST", &format!("/v1/sandboxes/{id}/{verb}"), None);
            }
        }
    }
}

/// All sandboxes of the tests' tenant.
fn list(client: &mut Client) -> Vec<Value> {
    let page = client.json("GET", "/v1/sandboxes?pageSize=200", None).expect("a list");
    page["items"].as_array().expect("items").clone()
}

#[test]
fn a_killed_server_loses_nothing_and_leaves_nothing() {
    let world = World::new(CONFIG).expect("a world");
    let told = Told::default();
    for round in 0..ROUNDS {
        let server = world.serve().expect("a server");
        let address = server.address;
        let (over, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
        let moment = Seeded::new(round).below(400);
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (told, over, requests) = (&told, &over, &requests);
                scope.spawn(move || trouble(address, round * 100 + number, told, over, requests));
            }
            // The moment of the crash: so many requests and then so many tenths of milliseconds.
            while requests.load(Ordering::Relaxed)
                < 3 + usize::try_from(round).expect("a small number") * 2
            {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_micros(moment * 100));
            server.crash().expect("it is killed");
            over.store(true, Ordering::Relaxed);
        });
        check(&world, &told, round);
    }
    let server = world.serve().expect("a server");
    let mut client = client(&server);
    for item in list(&mut client) {
        sandbox::remove(&mut client, item["id"].as_str().expect("an id")).expect("it is removed");
    }
    world.end(server).expect("nothing is left");
}

/// After a restart everything is as the clients were told.
fn check(world: &World, told: &Told, round: u64) {
    let server = world.serve().expect("the server starts again");
    let mut client = client(&server);
    let there: HashSet<String> =
        list(&mut client).iter().map(|s| s["id"].as_str().expect("an id").to_owned()).collect();
    let created = told.created.lock().expect("no thread panicked").clone();
    let doomed = told.doomed.lock().expect("no thread panicked").clone();
    for id in created.difference(&doomed) {
        assert!(there.contains(id), "round {round}: {id} was confirmed and is lost");
    }
    for id in told.deleted.lock().expect("no thread panicked").iter() {
        assert!(!there.contains(id), "round {round}: {id} was confirmed deleted and is back");
    }
    for id in &there {
        works(&mut client, id, round);
        sandbox::remove(&mut client, id).expect("it is removed");
        told.created.lock().expect("no thread panicked").remove(id);
    }
    told.created.lock().expect("no thread panicked").clear();
    server.stop().expect("it stops");
}

/// A sandbox that is there settles, and answers.
fn works(client: &mut Client, id: &str, round: u64) {
    loop {
        let state = sandbox::state(client, id).expect("a state").expect("it is there");
        match state.as_str() {
            "Running" => break,
            "Paused" => {
                client
                    .json("POST", &format!("/v1/sandboxes/{id}/resume"), None)
                    .expect("a paused sandbox resumes");
                sandbox::wait_state(client, id, "Running").expect("it runs again");
            }
            "Pending" | "Pausing" | "Resuming" => std::thread::sleep(Duration::from_millis(5)),
            other => {
                let seen = client.json("GET", &format!("/atoll/v1/sandboxes/{id}"), None);
                panic!("round {round}: {id} is {other}: {seen:?}");
            }
        }
    }
    let ran = sandbox::run(client, id, "echo alive").expect("a command works");
    assert_eq!((ran.stdout.as_str(), ran.code), ("alive", Some(0)), "round {round}: {id}");
}

#[test]
fn sandboxes_outlive_the_server_and_the_spawner() {
    let world = World::new(CONFIG).expect("a world");
    let server = world.serve().expect("a server");
    let mut first = client(&server);
    let id = sandbox::create(&mut first, &json!({})).expect("a sandbox");
    let count = "i=0; while true; do i=$((i+1)); echo $i > /tmp/count; sleep 0.01; done";
    let start = format!("nohup sh -c '{count}' >/dev/null 2>&1 & echo started");
    sandbox::run(&mut first, &id, &start).expect("a counter");
    server.crash().expect("the server is killed");

    let server = world.serve().expect("a server");
    let mut second = client(&server);
    works(&mut second, &id, 0);
    let read = |client: &mut Client| -> u64 {
        let ran = sandbox::run(client, &id, "cat /tmp/count").expect("the count");
        ran.stdout.trim().parse().unwrap_or(0)
    };
    let before = read(&mut second);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while read(&mut second) <= before {
        assert!(std::time::Instant::now() < deadline, "the counter stands still at {before}");
    }
    let spawner = world.spawner().expect("there is a spawner");
    rustix::process::kill_process(spawner, rustix::process::Signal::KILL).expect("it is killed");
    works(&mut second, &id, 1);
    let another = sandbox::create(&mut second, &json!({})).expect("a new spawner makes sandboxes");
    works(&mut second, &another, 1);
    for id in [&id, &another] {
        sandbox::remove(&mut second, id).expect("it is removed");
    }
    world.end(server).expect("nothing is left");
}
