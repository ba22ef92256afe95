//! What a claim makes of a warm sandbox: another image, a volume, a kernel that already runs.

use std::fs;
use std::net::SocketAddr;

use atoll_e2e::e2b::{self, Made};
use atoll_e2e::http::Client;
use atoll_e2e::image::Image;
use atoll_e2e::pool::{counts, on_disk, wait_stock};
use atoll_e2e::sandbox::Ran;
use atoll_e2e::world::{World, client};
use serde_json::{Value, json};

const POOL: &str = "warm";

fn config(template: &str) -> String {
    format!(
        "[runtime.network]\nuplink = \"none\"\n\
         [[pool]]\nname = \"{POOL}\"\ntemplate = \"{template}\"\nsize = 1\n"
    )
}

/// Claims with these options; the sandbox must be the one that was in stock.
fn claim(
    world: &World,
    client: &mut Client,
    address: SocketAddr,
    options: &[(&str, &str)],
) -> Made {
    wait_stock(address, POOL, 1).expect("a full pool");
    let stock = on_disk(world).expect("a list");
    let pairs = options
        .iter()
        .map(|(key, value)| (format!("e2b.agents.kruise.io/{key}"), Value::from(*value)));
    let wish = json!({ "metadata": pairs.collect::<serde_json::Map<_, _>>() });
    let made = e2b::create(client, POOL, &wish).expect("a sandbox");
    assert!(stock.contains(&made.id), "{} was not in stock: {stock:?}", made.id);
    made
}

/// Runs a command in the plainest shell.
fn sh(client: &mut Client, made: &Made, command: &str) -> Ran {
    let process = json!({ "cmd": "/bin/sh", "args": ["-c", command] });
    e2b::start(client, made, &json!({ "process": process, "stdin": false })).expect("it runs")
}

#[test]
fn another_image_takes_the_place_of_the_stocks() {
    // The configuration names the layout, so it lies beside the world and not in it.
    let files = tempfile::tempdir().expect("a folder");
    let (root, layout) = (files.path().join("root"), files.path().join("layout"));
    fs::create_dir(&root).expect("a folder");
    fs::write(root.join("only-here"), "the other image").expect("a file");
    Image::busybox(&root).expect("an image").write_layout(&layout).expect("a layout");
    let alias = format!("[images.aliases]\nother = \"oci:{}\"\n", layout.display());
    let world = World::new(&format!("{alias}{}", config("base"))).expect("a world");
    let server = world.serve().expect("a server");
    let mut client = client(&server);

    let made = claim(&world, &mut client, server.address, &[("image", "other")]);
    let ran = sh(&mut client, &made, "cat /only-here; test -e /usr/bin/python3 && echo base");
    assert_eq!(ran.stdout, "the other image", "its files and no others");
    assert_eq!(counts(server.address, POOL).expect("counts"), [0.0, 1.0, 0.0]);

    // The next one is as the pool keeps them.
    let plain = claim(&world, &mut client, server.address, &[]);
    let ran = sh(&mut client, &plain, "test ! -e /only-here && test -e /usr/bin/python3");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(counts(server.address, POOL).expect("counts"), [1.0, 1.0, 0.0]);
    for made in [made, plain] {
        e2b::kill(&mut client, &made.id).expect("it is removed");
    }
    world.end(server).expect("nothing is left");
}

#[test]
fn a_volume_is_shown_in_what_was_in_stock() {
    let world = World::new(&config("base")).expect("a world");
    let server = world.serve().expect("a server");
    let mut client = client(&server);
    let volume = json!({ "name": "shared" });
    client.json("POST", "/volumes", Some(&volume)).expect("a volume");
    let options = [("csi-volume-name", "shared"), ("csi-mount-point", "/data")];

    let first = claim(&world, &mut client, server.address, &options);
    let ran = sh(&mut client, &first, "sudo sh -c 'echo kept > /data/file'");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    e2b::kill(&mut client, &first.id).expect("it is removed");
    let second = claim(&world, &mut client, server.address, &options);
    assert_eq!(sh(&mut client, &second, "cat /data/file").stdout, "kept\n");
    let plain = claim(&world, &mut client, server.address, &[]);
    assert_eq!(sh(&mut client, &plain, "test ! -e /data/file").code, Some(0));
    assert_eq!(counts(server.address, POOL).expect("counts"), [1.0, 2.0, 0.0]);
    for made in [second, plain] {
        e2b::kill(&mut client, &made.id).expect("it is removed");
    }
    world.end(server).expect("nothing is left");
}

/// All processes: id, and start in ticks since the machine's start.
const PROCESSES: &str = "for stat in /proc/[0-9]*/stat; do cut -d' ' -f1,22 $stat; done";
/// What the kernel of Linux counts such times in, everywhere.
const TICKS_PER_SECOND: f64 = 100.0;

#[test]
fn a_kernel_waits_in_stock_and_is_its_claimers() {
    let world = World::with_interpreter(&config("code-interpreter")).expect("a world");
    let server = world.serve().expect("a server");
    let mut client = client(&server);
    wait_stock(server.address, POOL, 1).expect("a full pool");
    let uptime = fs::read_to_string("/proc/uptime").expect("the machine's clock");
    let claimed_at: f64 = uptime.split(' ').next().expect("a number").parse().expect("a number");
    let wish = json!({ "envVars": { "WHO": "the claimer" } });
    let made = e2b::create(&mut client, POOL, &wish).expect("a sandbox");

    let before = e2b::run(&mut client, &made, PROCESSES).expect("a list").stdout;
    let code = "import os; print(os.getpid(), os.environ['WHO'])";
    let events = e2b::run_code(&mut client, &made, code).expect("a result");
    let said = events.iter().filter(|event| event["type"] == "stdout");
    let said: String = said.filter_map(|event| event["text"].as_str()).collect();
    let (pid, who) = said.trim().split_once(' ').unwrap_or_else(|| panic!("{events:?}"));
    assert_eq!(who, "the claimer", "it has its claimer's variables");

    let mut known = before.lines().filter_map(|line| line.split_once(' '));
    let start = known.find(|(known, _)| *known == pid).map(|(_, start)| start);
    let start = start.unwrap_or_else(|| panic!("{pid} did not run before: {before}"));
    let started_at = start.parse::<f64>().expect("a number") / TICKS_PER_SECOND;
    assert!(started_at < claimed_at, "it was started at {started_at}, after {claimed_at}");
    e2b::kill(&mut client, &made.id).expect("it is removed");
    world.end(server).expect("nothing is left");
}
