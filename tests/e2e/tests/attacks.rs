//! Attacks that a review found and that must stay closed.

use std::time::{Duration, Instant};

use atoll_e2e::http::Client;
use atoll_e2e::sandbox;
use atoll_e2e::world::{World, client};
use serde_json::{Value, json};

const CONFIG: &str = "[runtime.network]\nuplink = \"none\"\n";

/// A creation with one named volume, and what the server answered.
fn ask_for_volume(client: &mut Client, sub_path: Option<&str>) -> (u16, Value) {
    let mut volume = json!({ "name": "v", "mountPath": "/v", "pvc": { "claimName": "shared" } });
    if let Some(sub_path) = sub_path {
        volume["subPath"] = json!(sub_path);
    }
    let body = json!({
        "image": { "uri": "base" }, "entrypoint": ["sleep", "infinity"], "timeout": 600,
        "resourceLimits": { "cpu": "1", "memory": "128Mi" }, "volumes": [volume],
    });
    let answer = client
        .send("POST", "/v1/sandboxes", "application/json", body.to_string().as_bytes())
        .expect("an answer");
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

#[test]
fn links_in_a_volume_lead_nowhere() {
    let world = World::new(CONFIG).expect("a world");
    let server = world.serve().expect("a server");
    let mut client = client(&server);
    let host = world.folder().join("host-secret");
    std::fs::create_dir(&host).expect("a folder of the host");
    std::fs::write(host.join("secret"), "secret of the host").expect("a secret");
    let (status, made) = ask_for_volume(&mut client, None);
    assert_eq!(status, 202, "{made}");
    let attacker = made["id"].as_str().expect("an id").to_owned();

    // A link that stays: nothing may be made behind it.
    let link = format!("ln -s {} /v/x && mkdir /v/d", host.display());
    assert_eq!(sandbox::run(&mut client, &attacker, &link).expect("it runs").code, Some(0));
    let (status, refused) = ask_for_volume(&mut client, Some("x/made/by/tenant"));
    assert!(status >= 400, "{refused}");
    assert!(!host.join("made").exists(), "a folder was made on the host");

    // A link that comes and goes, as fast as it can.
    let flip = format!(
        "import ctypes,os,time\nl=ctypes.CDLL(None)\nos.symlink(\"{}\",\"/v/l\")\nend=time.time()+60\nwhile time.time()<end and not os.path.exists(\"/v/stop\"): l.renameat2(-100,b\"/v/d\",-100,b\"/v/l\",2)",
        host.display()
    );
    let start = format!("nohup /usr/bin/python3 -c '{flip}' >/dev/null 2>&1 & echo on");
    sandbox::run(&mut client, &attacker, &start).expect("the flipping starts");
    let (mut mounted, mut tries) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(50);
    // Many tries, and among them some that met the folder and not the link.
    while (tries < 25 || mounted < 3) && Instant::now() < deadline {
        tries += 1;
        let (status, made) = ask_for_volume(&mut client, Some("d"));
        if status != 202 {
            continue;
        }
        mounted += 1;
        let id = made["id"].as_str().expect("an id").to_owned();
        let ran = sandbox::run(&mut client, &id, "cat /v/secret; ls /v").expect("it runs");
        assert!(!ran.stdout.contains("secret"), "the host's folder was mounted: {ran:?}");
        sandbox::remove(&mut client, &id).expect("it is removed");
    }
    assert!(mounted > 0, "the attack never even met a folder");
    sandbox::run(&mut client, &attacker, "touch /v/stop").expect("it runs");
    for target in ["/proc", "/proc/bus", "//", "/dev/x"] {
        let body = json!({
            "image": { "uri": "base" }, "entrypoint": ["sleep", "1"], "timeout": 600,
            "resourceLimits": { "cpu": "1", "memory": "128Mi" },
            "volumes": [{ "name": "v", "mountPath": target, "pvc": { "claimName": "shared" } }],
        });
        let answer = client
            .send("POST", "/v1/sandboxes", "application/json", body.to_string().as_bytes())
            .expect("an answer");
        assert!((400..500).contains(&answer.status), "{target}: {}", answer.explain());
    }
    remove_all(&mut client);
    world.end(server).expect("nothing is left");
}

fn remove_all(client: &mut Client) {
    let list = client.json("GET", "/v1/sandboxes?pageSize=200", None).expect("a list");
    for item in list["items"].as_array().expect("items") {
        sandbox::remove(client, item["id"].as_str().expect("an id")).expect("it is removed");
    }
}

#[test]
fn a_very_deep_tree_is_removed_like_any_other() {
    let world = World::new(CONFIG).expect("a world");
    let server = world.serve().expect("a server");
    let mut client = client(&server);
    let id = sandbox::create(&mut client, &json!({})).expect("a sandbox");
    let dig =
        "import os\nos.chdir(\"/tmp\")\nfor i in range(20000):\n  os.mkdir(\"a\"); os.chdir(\"a\")";
    let ran = sandbox::run(&mut client, &id, &format!("/usr/bin/python3 -c '{dig}'"));
    assert_eq!(ran.expect("it runs").code, Some(0));
    sandbox::remove(&mut client, &id).expect("it is removed");
    let (live, trash) = (world.data().join("sandboxes").join(&id), world.data().join("trash"));
    let deadline = Instant::now() + Duration::from_secs(60);
    while live.exists() || std::fs::read_dir(&trash).expect("the trash").next().is_some() {
        assert!(Instant::now() < deadline, "its files stay");
        std::thread::sleep(Duration::from_millis(20));
    }
    let next = sandbox::create(&mut client, &json!({})).expect("the server lives");
    sandbox::remove(&mut client, &next).expect("it is removed");
    world.end(server).expect("nothing is left");
}

#[test]
fn a_sandbox_that_silences_its_agent_harms_only_itself() {
    let world = World::new(CONFIG).expect("a world");
    let server = world.serve().expect("a server");
    let mut first = client(&server);
    let silent = sandbox::create(&mut first, &json!({})).expect("a sandbox");
    let good = sandbox::create(&mut first, &json!({})).expect("a sandbox");
    // The agent is stopped by a tracer inside; the command's own answer can't arrive any more.
    let trace = "import ctypes,time\nl=ctypes.CDLL(None)\nl.ptrace(0x4206,1,0,0)\nl.ptrace(0x4207,1,0,0)\ntime.sleep(600)";
    let body = json!({
        "command": format!("/usr/bin/python3 -c '{trace}'"), "background": true,
    });
    sandbox::start(&mut first, &silent, &body).expect("it starts");
    server.crash().expect("the server is killed");

    let begun = Instant::now();
    let server = world.serve().expect("the server starts all the same");
    assert!(begun.elapsed() < Duration::from_secs(20), "and at once: {:?}", begun.elapsed());
    let mut second = client(&server);
    assert_eq!(sandbox::run(&mut second, &good, "echo fine").expect("it runs").stdout, "fine");
    remove_all(&mut second);
    world.end(server).expect("nothing is left");
}

#[test]
fn layers_may_be_many() {
    let world = World::new(CONFIG).expect("a world");
    let server = world.serve().expect("a server");
    let mut client = client(&server);
    let mut id = sandbox::create(&mut client, &json!({})).expect("a sandbox");
    for depth in 0..12 {
        sandbox::run(&mut client, &id, &format!("echo {depth} > /root/{depth}")).expect("it runs");
        let path = format!("/v1/sandboxes/{id}/snapshots");
        let kept = client.json("POST", &path, Some(&json!({}))).expect("a snapshot");
        let snapshot = kept["id"].as_str().expect("an id").to_owned();
        let path = format!("/v1/snapshots/{snapshot}");
        let deadline = Instant::now() + Duration::from_secs(30);
        while client.json("GET", &path, None).expect("it")["status"]["state"] != "Ready" {
            assert!(Instant::now() < deadline, "the snapshot is never ready");
            std::thread::sleep(Duration::from_millis(5));
        }
        sandbox::remove(&mut client, &id).expect("it is removed");
        let from = json!({ "image": null, "snapshotId": snapshot });
        id = sandbox::create(&mut client, &from).expect("a sandbox of a snapshot");
    }
    let seen = sandbox::run(&mut client, &id, "cat /root/*").expect("it runs").stdout;
    assert_eq!(seen.len(), "0123456789".len() + 4, "{seen}");
    remove_all(&mut client);
    world.end(server).expect("nothing is left");
}

#[test]
fn what_the_kernel_counts_per_user_is_counted_per_sandbox() {
    let world = World::new(CONFIG).expect("a world");
    let server = world.serve().expect("a server");
    let mut client = client(&server);
    let greedy = sandbox::create(&mut client, &json!({})).expect("a sandbox");
    let other = sandbox::create(&mut client, &json!({})).expect("a sandbox");
    let hoard = "import ctypes,time\nl=ctypes.CDLL(None)\nn=0\nwhile l.inotify_init()>=0 and n<5000: n+=1\nopen(\"/tmp/full\",\"w\").write(str(n))\ntime.sleep(600)";
    let start = format!("nohup /usr/bin/python3 -c '{hoard}' >/dev/null 2>&1 & echo on");
    sandbox::run(&mut client, &greedy, &start).expect("it starts");
    let full = "for i in $(seq 500); do test -s /tmp/full && exit 0; sleep 0.02; done; exit 1";
    assert_eq!(sandbox::run(&mut client, &greedy, full).expect("it runs").code, Some(0));
    let one =
        "/usr/bin/python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).inotify_init()<0)'";
    assert_eq!(sandbox::run(&mut client, &other, one).expect("it runs").code, Some(0));
    let host = std::process::Command::new("sh").args(["-c", one]).status().expect("it runs");
    assert!(host.success(), "root of the host has lost its watches");
    remove_all(&mut client);
    world.end(server).expect("nothing is left");
}
