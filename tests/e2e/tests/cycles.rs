//! Many pauses: nothing is lost, however they come about.

use std::time::{Duration, Instant};

use atoll_e2e::e2b::{self, Made};
use atoll_e2e::http::Client;
use atoll_e2e::world::{World, client};
use serde_json::json;

const CONFIG: &str = "[runtime.network]\nuplink = \"none\"\n";
const CYCLES: usize = 50;
const PATIENCE: Duration = Duration::from_secs(60);

/// A tree with links, modes, holes and odd names, and a process that counts.
const PREPARE: &str = r#"
set -e
mkdir -p ~/tree/deep/er && cd ~/tree
head -c 300000 /dev/urandom > random
printf 'text\n' > 'odd name
with a line'
ln -s random link && ln random hard
truncate -s 1M hole && chmod 640 random && chmod 1777 deep
for i in $(seq 200); do echo $i > deep/er/$i; done
nohup sh -c 'i=0; while :; do i=$((i+1)); echo $i > /tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.02; done' >/dev/null 2>&1 &
"#;
const DIGEST: &str = "cd ~/tree && (find . -printf '%p %m %s %l %n\\n' | sort; \
                      find . -type f -print0 | sort -z | xargs -0 sha256sum) | sha256sum";

fn told(client: &mut Client, made: &Made, command: &str) -> String {
    let ran = e2b::run(client, made, command).expect("it runs");
    assert_eq!(ran.code, Some(0), "{command}: {ran:?}");
    ran.stdout.trim().to_owned()
}

fn count(client: &mut Client, made: &Made) -> u64 {
    told(client, made, "cat /tmp/count").parse().expect("a count")
}

fn wait_state(client: &mut Client, made: &Made, wanted: &str) {
    let deadline = Instant::now() + PATIENCE;
    while e2b::state(client, &made.id).expect("a state").as_deref() != Some(wanted) {
        assert!(Instant::now() < deadline, "it never was {wanted}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_counted(client: &mut Client, made: &Made, beyond: u64) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = count(client, made);
        if now > beyond {
            return now;
        }
        assert!(Instant::now() < deadline, "the counter stands still at {now}");
    }
}

#[test]
fn fifty_pauses_change_no_byte_and_stop_no_process() {
    let world = World::new(CONFIG).expect("a world");
    let server = world.serve().expect("a server");
    let mut client = client(&server);
    let wish = json!({ "autoPause": true, "timeout": 300 });
    let made = e2b::create(&mut client, "base", &wish).expect("a sandbox");
    told(&mut client, &made, PREPARE);
    told(&mut client, &made, "while [ ! -s /tmp/count ]; do :; done");
    let before = told(&mut client, &made, DIGEST);
    let mut counted = 0;
    for cycle in 0..CYCLES {
        counted = wait_counted(&mut client, &made, counted);
        if cycle % 2 == 0 {
            client.json("POST", &format!("/sandboxes/{}/pause", made.id), None).expect("paused");
        } else {
            // The clock's own pause.
            let soon = json!({ "timeout": 0 });
            let path = format!("/sandboxes/{}/timeout", made.id);
            client.json("POST", &path, Some(&soon)).expect("its time is up");
        }
        wait_state(&mut client, &made, "paused");
        let path = format!("/v2/sandboxes/{}/connect", made.id);
        let again = client.send("POST", &path, "application/json", b"{\"timeout\":300}");
        let again = again.expect("an answer");
        assert_eq!(again.status, 201, "{}", again.explain());
        assert_eq!(e2b::made(&again).expect("a sandbox"), made, "the same name and token");
    }
    wait_counted(&mut client, &made, counted);
    assert_eq!(told(&mut client, &made, DIGEST), before, "not a byte has changed");
    e2b::kill(&mut client, &made.id).expect("it is removed");
    world.end(server).expect("nothing is left");
}

#[test]
fn a_pause_survives_the_server() {
    let world = World::new(CONFIG).expect("a world");
    let server = world.serve().expect("a server");
    let mut one = client(&server);
    let [frozen, stored] = [true, false].map(|memory| {
        let made = e2b::create(&mut one, "base", &json!({})).expect("a sandbox");
        told(&mut one, &made, PREPARE);
        told(&mut one, &made, "while [ ! -s /tmp/count ]; do :; done");
        let digest = told(&mut one, &made, DIGEST);
        let body = json!({ "memory": memory });
        one.json("POST", &format!("/sandboxes/{}/pause", made.id), Some(&body)).expect("paused");
        (made, digest)
    });
    server.crash().expect("killed");
    let server = world.serve().expect("a server again");
    let mut two = client(&server);
    for (made, digest) in [&frozen, &stored] {
        assert_eq!(e2b::state(&mut two, &made.id).expect("a state").as_deref(), Some("paused"));
        let path = format!("/v2/sandboxes/{}/connect", made.id);
        let again = two.send("POST", &path, "application/json", b"{}").expect("an answer");
        assert_eq!(again.status, 201, "{}", again.explain());
        assert_eq!(&told(&mut two, made, DIGEST), digest);
    }
    let counted = count(&mut two, &frozen.0);
    wait_counted(&mut two, &frozen.0, counted);
    let gone = told(&mut two, &stored.0, "pgrep -f '[c]ount.new' || echo none");
    assert_eq!(gone, "none", "a pause that keeps files only keeps no process");
    for (made, _) in [frozen, stored] {
        e2b::kill(&mut two, &made.id).expect("it is removed");
    }
    world.end(server).expect("nothing is left");
}
