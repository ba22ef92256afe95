//! What sandboxes can reach. Their uplink is a namespace of fake hosts made here, so that no
//! packet leaves this machine even where a wall is missing.

use atoll_e2e::greeter::{self, GREETING, Greeter};
use atoll_e2e::http::Client;
use atoll_e2e::sandbox;
use atoll_e2e::world::{FakeInternet, World, client};
use serde_json::json;

/// A public host, and hosts that must stay out of reach: metadata service, private, shared.
const PUBLIC: &str = "93.184.216.34";
const RESOLVER: &str = "10.99.0.53";
const ALLOWED: &str = "10.77.0.1";
const CLOSED: [&str; 5] =
    ["169.254.169.254", "10.0.0.5", "172.16.0.5", "192.168.1.5", "100.64.0.5"];
const PORT: u16 = 8000;

/// Whether a TCP connection from inside the sandbox to `host` yields the greeting.
fn reaches(client: &mut Client, id: &str, host: &str, port: u16) -> bool {
    let command = format!("/usr/bin/python3 -c '{}'", greeter::visit(host, port));
    let ran = sandbox::run(client, id, &command).expect("it runs");
    ran.stdout.contains(GREETING)
}

#[test]
fn sandboxes_reach_the_internet_and_nothing_else() {
    let mut addresses = vec![PUBLIC, RESOLVER, ALLOWED];
    addresses.extend(CLOSED);
    let internet = FakeInternet::new("net", &addresses).expect("a fake internet");
    let world = World::new(&format!(
        "[runtime.network]\nuplink = {{ namespace = \"{}\" }}\nresolvers = [\"{RESOLVER}\"]\n\
         allow = [\"{ALLOWED}/32\"]\n",
        internet.path()
    ))
    .expect("a world");
    let server = world.serve().expect("a server");
    let mut client = client(&server);
    let hosts = Greeter::start(&internet, PORT).expect("fake hosts");
    let resolver = Greeter::start(&internet, 53).expect("a fake resolver");
    let first = sandbox::create(&mut client, &json!({})).expect("a sandbox");
    let second = sandbox::create(&mut client, &json!({})).expect("a sandbox");

    assert!(reaches(&mut client, &first, PUBLIC, PORT), "the internet is reached");
    assert!(reaches(&mut client, &first, ALLOWED, PORT), "an allowed private host is reached");
    assert!(reaches(&mut client, &first, RESOLVER, 53), "the resolver is reached");
    assert!(!reaches(&mut client, &first, RESOLVER, PORT), "but only for names");
    for host in CLOSED {
        assert!(!reaches(&mut client, &first, host, PORT), "{host} must be out of reach");
    }

    let serve = "nohup /usr/bin/python3 -c 'import socketserver as S
class H(S.BaseRequestHandler):
    def handle(self): self.request.sendall(b\"hello\")
S.ThreadingTCPServer((\"0.0.0.0\",8001),H).serve_forever()' >/dev/null 2>&1 &
for i in $(seq 200); do /usr/bin/python3 -c 'import socket; socket.create_connection((\"127.0.0.1\",8001),1)' && exit 0; done; exit 1";
    let ran = sandbox::run(&mut client, &second, serve).expect("a service inside");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(reaches(&mut client, &second, "127.0.0.1", 8001), "a sandbox reaches itself");
    let address = sandbox::run(&mut client, &second, "hostname -I").expect("its address").stdout;
    let address = address.split_whitespace().next().expect("an address").to_owned();
    assert!(reaches(&mut client, &second, &address, 8001), "by its own address, too");
    assert!(!reaches(&mut client, &first, &address, 8001), "another sandbox is out of reach");
    let (host, port) = (server.address.ip().to_string(), server.address.port());
    assert!(!reaches(&mut client, &first, &host, port), "so is the server's loopback");
    assert!(!reaches(&mut client, &first, "10.231.255.253", PORT), "and the router's uplink");

    let raw =
        "/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'";
    assert_ne!(sandbox::run(&mut client, &first, raw).expect("it runs").code, Some(0));
    let change = "ip addr add 10.231.9.9/32 dev eth0 || ip link set eth0 down";
    assert_ne!(sandbox::run(&mut client, &first, change).expect("it runs").code, Some(0));

    let spawner = world.spawner().expect("there is a spawner");
    rustix::process::kill_process(spawner, rustix::process::Signal::KILL).expect("it is killed");
    let third = sandbox::create(&mut client, &json!({})).expect("a new spawner makes sandboxes");
    for id in [&first, &third] {
        assert!(reaches(&mut client, id, PUBLIC, PORT), "the new router connects {id}");
    }

    for id in [&first, &second, &third] {
        sandbox::remove(&mut client, id).expect("it is removed");
    }
    drop((hosts, resolver));
    world.end(server).expect("nothing is left");
}
