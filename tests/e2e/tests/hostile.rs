//! What a hostile sandbox tries, and what comes of it.

use atoll_e2e::http::Client;
use atoll_e2e::sandbox::{self, Ran};
use atoll_e2e::server::Server;
use atoll_e2e::world::{World, client};
use serde_json::json;

/// A sandbox to attack from.
struct Cell {
    world: World,
    server: Server,
    client: Client,
    id: String,
}

impl Cell {
    fn new(isolation: &str) -> Self {
        let config = format!(
            "[runtime]\nisolation = \"{isolation}\"\n[runtime.network]\nuplink = \"none\"\n"
        );
        let world = World::new(&config).expect("a world");
        let server = world.serve().expect("a server");
        let mut client = client(&server);
        let limits = json!({ "resourceLimits": { "cpu": "1", "memory": "128Mi" } });
        let id = sandbox::create(&mut client, &limits).expect("a sandbox");
        Self { world, server, client, id }
    }

    fn run(&mut self, command: &str) -> Ran {
        sandbox::run(&mut self.client, &self.id, command).expect("the command is run")
    }

    /// The command must fail.
    fn refused(&mut self, command: &str) {
        let ran = self.run(command);
        assert!(ran.code.is_some_and(|code| code != 0), "{command:?} must be refused: {ran:?}");
    }

    fn python_refused(&mut self, script: &str) {
        self.refused(&format!("/usr/bin/python3 -c '{script}'"));
    }

    fn end(mut self) {
        sandbox::remove(&mut self.client, &self.id).expect("it is removed");
        self.world.end(self.server).expect("nothing is left");
    }
}

/// Raw system calls by number (x86-64 and arm64 differ, so only through names Python knows).
const SYSCALL: &str = "import ctypes,sys; l=ctypes.CDLL(None,use_errno=True); ";

fn walls_hold(mut cell: Cell) {
    for command in [
        "mount -t tmpfs none /mnt",
        "umount /proc",
        "mount -o remount,rw /proc/sys",
        "unshare --user true",
        "unshare --mount true",
        "unshare --net true",
        "mknod /tmp/disk b 254 0",
        "echo 1 > /proc/sys/kernel/panic",
        "echo b > /proc/sysrq-trigger",
        "head -c 1 /proc/kcore | grep -q .",
        "echo x > /proc/1/exe",
        "hostname changed",
        "dmesg",
        "ls /sys/firmware/* | grep -q .",
        "test -e /dev/vda -o -e /dev/sda -o -e /dev/mem -o -e /dev/kvm",
        "date --set 2001-01-01",
        "sysctl -w vm.drop_caches=3",
    ] {
        cell.refused(command);
    }
    for call in [
        "l.setns(0,0)",
        "l.unshare(0x10000000)",
        "l.keyctl(0,0,0,0,0)",
        "l.swapon(b\"/tmp\",0)",
        "l.reboot(0x89abcdef)",
    ] {
        cell.python_refused(&format!("{SYSCALL}r={call}; sys.exit(0 if r==0 else 1)"));
    }
    cell.python_refused("import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)");
    cell.python_refused("import socket; socket.socket(40, socket.SOCK_STREAM)");

    let host_pid = std::process::id();
    cell.refused(&format!("kill -0 {host_pid} 2>/dev/null && ls -d /proc/{host_pid}/cwd"));
    let data = cell.world.data();
    cell.refused(&format!("ls {}", data.display()));
    cell.refused(&format!("chroot /proc/1/root/../.. ls {}", data.display()));
    let identity = cell.run("cat /proc/self/uid_map").stdout;
    let first: u64 =
        identity.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a map");
    assert!(first > 65_535, "root inside is not root outside: {identity}");
    assert_eq!(cell.run("id -u").stdout, "0");
    let sudo = cell.run("su user -c 'cd; pwd; id -un; sudo -n id -u'");
    assert_eq!(sudo.stdout, "/home/useruser0", "{sudo:?}");
    cell.end();
}

#[test]
fn the_native_walls_hold() {
    walls_hold(Cell::new("native"));
}

#[test]
fn the_walls_of_runc_hold() {
    walls_hold(Cell::new("runc"));
}

#[test]
fn a_sandbox_that_takes_all_it_can_hurts_only_itself() {
    let mut cell = Cell::new("native");
    let other = sandbox::create(&mut cell.client, &json!({})).expect("a neighbour");

    // Memory: the command dies, the agent and the neighbour don't.
    let hog = cell.run("/usr/bin/python3 -c 'x=bytearray(1<<30)'; echo $?");
    assert!(hog.stdout.contains("137"), "{hog:?}");
    assert_eq!(cell.run("echo still here").stdout, "still here");

    // Processes: a bounded bomb hits the limit and says so.
    let bomb = "for i in $(seq 6000); do sleep 30 & done 2>&1 | grep -ci 'fork\\|resource'";
    assert_ne!(cell.run(bomb).stdout.trim(), "0");
    let neighbour = sandbox::run(&mut cell.client, &other, "echo fine").expect("it runs");
    assert_eq!(neighbour.stdout, "fine");

    // Logs: an entrypoint that never stops printing keeps a bounded log.
    let chatty = json!({ "entrypoint": ["sh", "-c", "yes 0123456789abcdef"] });
    let chatty = sandbox::create(&mut cell.client, &chatty).expect("a chatty sandbox");
    let path = format!("/atoll/v1/sandboxes/{chatty}/logs?tail=1000000");
    let answer = cell.client.send("GET", &path, "", b"").expect("its log");
    assert!(answer.status == 200 && answer.body.len() <= 1 << 20, "{}", answer.explain());
    for id in [other, chatty] {
        sandbox::remove(&mut cell.client, &id).expect("it is removed");
    }
    cell.end();
}

#[test]
fn an_entrypoint_that_uses_up_the_memory_is_reported() {
    let world = World::new("[runtime.network]\nuplink = \"none\"\n").expect("a world");
    let server = world.serve().expect("a server");
    let mut client = client(&server);
    let body = json!({
        "image": { "uri": "base" }, "timeout": 600,
        "entrypoint": ["/usr/bin/python3", "-c", "import time; time.sleep(0.2); x=bytearray(1<<30)"],
        "resourceLimits": { "cpu": "1", "memory": "64Mi" },
    });
    let made = client.json("POST", "/v1/sandboxes", Some(&body)).expect("it is made");
    let id = made["id"].as_str().expect("an id").to_owned();
    sandbox::wait_state(&mut client, &id, "Failed").expect("it fails");
    let seen = client.json("GET", &format!("/v1/sandboxes/{id}"), None).expect("its record");
    let reason = seen["status"]["reason"].as_str().unwrap_or_default();
    assert_eq!(reason, "OUT_OF_MEMORY", "{seen}");
    sandbox::remove(&mut client, &id).expect("it is removed");
    world.end(server).expect("nothing is left");
}
