//! Warm pools under storms: nothing handed out twice, nothing left by callers who went away.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use atoll_e2e::e2b::{self, Made};
use atoll_e2e::pool::{metric, wait_for, wait_stock};
use atoll_e2e::world::{KEY, World, client, client_of};
use serde_json::{Value, json};

const STOCK: usize = 50;
const CLAIMS: usize = 200;
const POOL: &str = "warm";

fn config(size: usize) -> String {
    format!(
        "[runtime.network]\nuplink = \"none\"\n\
         [[pool]]\nname = \"{POOL}\"\ntemplate = \"base\"\nsize = {size}\n"
    )
}

fn count(address: SocketAddr, name: &str) -> f64 {
    metric(address, POOL, name).expect("metrics").expect("a count of the pool")
}

/// Calls `one` with each number from 0 in a thread of its own, all at the same time.
fn at_once<T: Send>(calls: usize, one: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..calls).map(|number| scope.spawn(move || one(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no error")).collect()
    })
}

#[test]
fn a_storm_of_claims_gets_each_its_own() {
    let world = World::new(&config(STOCK)).expect("a world");
    let server = world.serve().expect("a server");
    let address = server.address;
    wait_stock(address, POOL, STOCK).expect("a full pool");
    let made = at_once(CLAIMS, |number| {
        let mut client = client_of(address);
        let env = json!({ "envVars": { "WHO": number.to_string() } });
        let start = Instant::now();
        let made = e2b::create(&mut client, POOL, &env).expect("a sandbox");
        let took = start.elapsed();
        let ran = e2b::run(&mut client, &made, "echo $WHO; echo mine > /tmp/mine").expect("run");
        assert_eq!(ran.stdout.trim(), number.to_string(), "its own environment");
        (made, took)
    });
    let ids: BTreeSet<_> = made.iter().map(|(made, _)| &made.id).collect();
    let tokens: BTreeSet<_> = made.iter().map(|(made, _)| &made.token).collect();
    assert_eq!((ids.len(), tokens.len()), (CLAIMS, CLAIMS), "no sandbox was handed out twice");
    let mut times: Vec<_> = made.iter().map(|(_, took)| *took).collect();
    times.sort();
    let hits = count(address, "atoll_pool_hits_total");
    let misses = count(address, "atoll_pool_misses_total");
    eprintln!(
        "{CLAIMS} at once on {STOCK} warm: p50 {:?}, p99 {:?}, {hits} hits, {misses} misses",
        times[CLAIMS / 2],
        times[CLAIMS * 99 / 100],
    );
    assert!(hits >= STOCK as f64, "the stock was used");
    let mut client = client(&server);
    for (made, _) in &made {
        e2b::kill(&mut client, &made.id).expect("it is removed");
    }
    world.end(server).expect("nothing is left");
}

/// Asks for a sandbox and goes away after a while; gives the sandbox when the server was quicker.
///
/// Only our side is closed, and what the server still says is read to the end. So we know what it
/// has given, while to it we look like anyone who hung up.
fn go_away(address: SocketAddr, after: Duration) -> Option<String> {
    let body = json!({ "templateID": POOL, "metadata": { "left": "behind" } }).to_string();
    let head = format!(
        "POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: {KEY}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(format!("{head}{body}").as_bytes()).expect("sent");
    std::thread::sleep(after);
    stream.shutdown(Shutdown::Write).expect("hung up");
    let mut said = Vec::new();
    // A reset is no answer either.
    stream.read_to_end(&mut said).ok();
    let said = String::from_utf8(said).expect("text");
    let (head, body) = said.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 201"), "{said}");
    let made: Value = serde_json::from_str(body).expect("a whole answer or none");
    Some(made["sandboxID"].as_str().expect("an id").to_owned())
}

#[test]
fn callers_who_went_away_leave_nothing() {
    let world = World::new(&config(10)).expect("a world");
    let server = world.serve().expect("a server");
    let address = server.address;
    wait_stock(address, POOL, 10).expect("a full pool");
    let given = at_once(60, |number| {
        if number % 2 == 0 {
            // From before the request is read to nearly done, from stock and from nothing.
            let after = Duration::from_millis(number as u64 * 10);
            return go_away(address, after);
        }
        let mut client = client_of(address);
        let made = e2b::create(&mut client, POOL, &Value::Null).expect("a sandbox");
        let ran = e2b::run(&mut client, &made, "echo mine").expect("it runs");
        assert_eq!(ran.stdout, "mine\n", "whoever stays is served");
        Some(made.id)
    });
    let ids: BTreeSet<_> = given.iter().flatten().collect();
    let abandoned = given.iter().filter(|id| id.is_none()).count();
    eprintln!("{} were given, {abandoned} callers were gone before", ids.len());
    assert_eq!(ids.len() + abandoned, given.len(), "no sandbox was handed out twice");
    assert!(abandoned > 0, "nobody went away in time: nothing was tried");
    let mut client = client(&server);
    for id in ids {
        e2b::kill(&mut client, id).expect("what was given is there");
    }
    wait_for("what nobody waits for is removed", || {
        let list = client.json("GET", "/v2/sandboxes", None)?;
        Ok(list.as_array().is_some_and(Vec::is_empty))
    })
    .expect("an empty list");
    wait_stock(address, POOL, 10).expect("the pool is filled again");
    world.end(server).expect("nothing is left");
}

#[test]
fn stock_survives_a_crash_or_is_replaced() {
    let world = World::new(&config(4)).expect("a world");
    let mut taken = BTreeSet::new();
    for _ in 0..4 {
        let server = world.serve().expect("a server");
        wait_stock(server.address, POOL, 4).expect("a full pool");
        let mut client = client(&server);
        for _ in 0..3 {
            let made = e2b::create(&mut client, POOL, &Value::Null).expect("a sandbox");
            assert!(taken.insert(made.id.clone()), "{} was handed out twice", made.id);
        }
        server.crash().expect("killed");
    }
    let server = world.serve().expect("a server");
    let mut client = client(&server);
    for id in &taken {
        assert_eq!(e2b::state(&mut client, id).expect("a state").as_deref(), Some("running"));
        e2b::kill(&mut client, id).expect("it is removed");
    }
    world.end(server).expect("nothing is left");
}

/// A claim that is never made from nothing.
fn only_stock(patience_seconds: u32) -> Value {
    json!({ "metadata": {
        "e2b.agents.kruise.io/create-on-no-stock": "false",
        "e2b.agents.kruise.io/claim-timeout-seconds": patience_seconds.to_string(),
    }})
}

#[test]
fn no_stock_and_no_wish_to_create_waits_and_then_says_so() {
    let world = World::new("[runtime.network]\nuplink = \"none\"\n").expect("a world");
    let server = world.serve().expect("a server");
    let address = server.address;
    let mut client = client(&server);
    // Each sandbox takes longer to be ready than the impatient wait.
    let recipe = json!({ "fromTemplate": "base", "readyCmd": "sleep 4" });
    e2b::build(&mut client, "slow", &recipe).expect("a template");
    let pool = json!({ "template": "slow", "size": 1 });
    client.json("PUT", "/atoll/v1/pools/sluggish", Some(&pool)).expect("a pool");
    wait_stock(address, "sluggish", 1).expect("a full pool");

    let answers = at_once(6, |_| {
        e2b::try_create(&mut client_of(address), "sluggish", &only_stock(1)).expect("an answer")
    });
    let (given, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a.status == 201);
    assert_eq!(given.len(), 1, "the stock of one is given to one");
    for answer in refused {
        assert_eq!(answer.status, 503, "{}", answer.explain());
        assert!(answer.explain().contains("sluggish"), "{}", answer.explain());
    }
    // Who has the time gets the next one.
    let second = e2b::create(&mut client, "sluggish", &only_stock(60)).expect("a sandbox");
    let first = e2b::made(given[0]).expect("a sandbox");
    assert_ne!(first.id, second.id);

    let unknown = e2b::try_create(&mut client, "nowhere", &only_stock(1)).expect("an answer");
    assert_eq!(unknown.status, 404, "{}", unknown.explain());
    for Made { id, .. } in [first, second] {
        e2b::kill(&mut client, &id).expect("it is removed");
    }
    world.end(server).expect("nothing is left");
}
