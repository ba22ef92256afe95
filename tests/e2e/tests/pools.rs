//! Warm pools under storms: nothing handed out twice, nothing left by callers who went away.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use atoll_e2e::e2b::{self, Made};
use atoll_e2e::world::{KEY, World, client, client_of};
use serde_json::{Value, json};

const STOCK: usize = 50;
const CLAIMS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(60);

fn config(size: usize) -> String {
    format!(
        "[runtime.network]\nuplink = \"none\"\n\
         [[pool]]\nname = \"warm\"\ntemplate = \"base\"\nsize = {size}\n"
    )
}

/// The value of one of the server's metrics for the pool.
fn pool_metric(address: SocketAddr, name: &str) -> f64 {
    let answer = client_of(address).send("GET", "/metrics", "", b"").expect("metrics");
    let text = String::from_utf8(answer.body).expect("text");
    let wanted = format!("{name}{{pool=\"warm\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&wanted));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
}

fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn wait_stock(address: SocketAddr, count: usize) {
    wait_for("the pool fills up", || pool_metric(address, "atoll_pool_ready") >= count as f64);
}

#[test]
fn a_storm_of_claims_gets_each_its_own() {
    let world = World::new(&config(STOCK)).expect("a world");
    let server = world.serve().expect("a server");
    let address = server.address;
    wait_stock(address, STOCK);
    let made: Vec<(Made, Duration)> = std::thread::scope(|scope| {
        let one = |number: usize| {
            let mut client = client_of(address);
            let env = json!({ "envVars": { "WHO": number.to_string() } });
            let start = Instant::now();
            let made = e2b::create(&mut client, "warm", &env).expect("a sandbox");
            let took = start.elapsed();
            let ran =
                e2b::run(&mut client, &made, "echo $WHO; echo mine > /tmp/mine").expect("run");
            assert_eq!(ran.stdout.trim(), number.to_string(), "its own environment");
            (made, took)
        };
        let threads: Vec<_> = (0..CLAIMS).map(|n| scope.spawn(move || one(n))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no error")).collect()
    });
    let ids: BTreeSet<_> = made.iter().map(|(made, _)| &made.id).collect();
    let tokens: BTreeSet<_> = made.iter().map(|(made, _)| &made.token).collect();
    assert_eq!((ids.len(), tokens.len()), (CLAIMS, CLAIMS), "no sandbox was handed out twice");
    let mut times: Vec<_> = made.iter().map(|(_, took)| *took).collect();
    times.sort();
    let (hits, misses) = (
        pool_metric(address, "atoll_pool_hits_total"),
        pool_metric(address, "atoll_pool_misses_total"),
    );
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

#[test]
fn callers_who_went_away_leave_nothing() {
    let world = World::new(&config(2)).expect("a world");
    let server = world.serve().expect("a server");
    let address = server.address;
    wait_stock(address, 2);
    let body = json!({ "templateID": "warm", "metadata": { "left": "behind" } }).to_string();
    let head = format!(
        "POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: {KEY}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    for round in 0..20 {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body.as_bytes()))
            .expect("sent");
        // Different moments of the creation, from before it is read to nearly done.
        std::thread::sleep(Duration::from_micros(300 * round));
        stream.shutdown(Shutdown::Both).ok();
    }
    let mut client = client(&server);
    wait_for("what nobody waits for is removed", || {
        let list = client.json("GET", "/v2/sandboxes", None).expect("a list");
        // An answer that was complete before the caller went away is a sandbox that was given.
        list.as_array().expect("an array").is_empty()
    });
    wait_stock(address, 2);
    world.end(server).expect("nothing is left");
}

#[test]
fn stock_survives_a_crash_or_is_replaced() {
    let world = World::new(&config(4)).expect("a world");
    let mut taken = BTreeSet::new();
    for _ in 0..4 {
        let server = world.serve().expect("a server");
        wait_stock(server.address, 4);
        let mut client = client(&server);
        for _ in 0..3 {
            let made = e2b::create(&mut client, "warm", &Value::Null).expect("a sandbox");
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

#[test]
fn no_stock_and_no_wish_to_create_waits_and_then_says_so() {
    let world = World::new(&config(1)).expect("a world");
    let server = world.serve().expect("a server");
    let mut client = client(&server);
    wait_stock(server.address, 1);
    let option = |key: &str| format!("e2b.agents.kruise.io/{key}");
    let wish = json!({ "metadata": {
        option("create-on-no-stock"): "false",
        option("claim-timeout-seconds"): "30",
    }});
    // More claims than stock: each later one waits for the pool to fill again.
    let made: Vec<Made> =
        (0..4).map(|_| e2b::create(&mut client, "warm", &wish).expect("a sandbox")).collect();
    let refused = e2b::try_create(&mut client, "nowhere", &wish).expect("an answer");
    assert_eq!(refused.status, 404, "{}", refused.explain());
    for made in &made {
        e2b::kill(&mut client, &made.id).expect("it is removed");
    }
    world.end(server).expect("nothing is left");
}
