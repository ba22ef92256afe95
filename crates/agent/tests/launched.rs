//! The agent as a launcher starts it: socket at 3, configuration at 4, log ring at 5.

use atoll_guest::ring;
use std::{
    fs,
    io::{Read, Write},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const RING_BYTES: usize = 4096;

struct Launched {
    child: Child,
    directory: tempfile::TempDir,
}

/// Starts the agent; `init` makes it the first process of a pid namespace, which needs root.
fn launch(config: &str, init: bool) -> Launched {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    fs::write(path("config"), config).expect("writable");
    fs::write(path("ring"), vec![0; ring::HEADER_BYTES + RING_BYTES]).expect("writable");
    let socket = OwnedFd::from(UnixListener::bind(path("socket")).expect("a socket"));
    // The shell puts the descriptors where the agent expects them, and one more to be hidden.
    let script = r#"exec $2 "$0" 3<&0 4<"$1/config" 5<>"$1/ring" 6</dev/null </dev/null"#;
    let wrapper = if init { "unshare --pid --fork --mount-proc --kill-child" } else { "" };
    let child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_atoll-agent")])
        .arg(directory.path())
        .arg(wrapper)
        .stdin(socket)
        .stdout(Stdio::null())
        .spawn()
        .expect("sh is there");
    Launched { child, directory }
}

impl Launched {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn log(&self) -> String {
        let bytes = fs::read(self.path("ring")).expect("readable");
        String::from_utf8_lossy(&ring::read(&bytes)).into_owned()
    }

    fn call(&self, request: &str, body: &str) -> String {
        self.call_with(request, "", body)
    }

    fn call_with(&self, request: &str, headers: &str, body: &str) -> String {
        let mut stream = UnixStream::connect(self.path("socket")).expect("the socket listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}{headers}"
        );
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).expect("writable");
        let mut answer = Vec::new();
        // An agent that ends while it answers leaves half an answer, which the caller judges.
        stream.read_to_end(&mut answer).ok();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn run(&self, command: &str) -> String {
        self.call("POST /command", &format!(r#"{{"command":"{command}"}}"#))
    }

    fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("it ends");
        (status.code(), self.log())
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // Nothing to do for one that has ended.
        self.child.kill().and_then(|()| self.child.wait()).ok();
    }
}

/// Whether pid namespaces can be made here.
fn can_be_init() -> bool {
    let tried = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).output();
    tried.is_ok_and(|output| output.status.success())
}

#[test]
fn it_serves_logs_and_hides_its_descriptors() {
    let config = r#"{"id":"s","entrypoint":["sh","-c","echo $WHO; echo bad >&2; exec sleep 1000"],
        "env":{"WHO":"entry","EXECD_ENVS":"/tmp/.atoll-test-none"},"cwd":"/usr","user":null,"new":1}"#;
    let mut launched = launch(config, false);
    let ping = launched.call("GET /ping", "");
    assert!(
        ping.starts_with("HTTP/1.1 200") && ping.contains("atoll-agent-generation: 1"),
        "{ping}"
    );
    while launched.log() != "entry\nbad\n" {}
    assert!(launched.call("GET /atoll/logs?tail=1", "").ends_with("\r\n\r\nbad\n"));
    let seen = launched.run("ls /proc/self/fd | tr '\\\\n' ' '; pwd; echo $WHO");
    // ls itself opens the directory it lists as 3.
    assert!(
        seen.contains(r#""text":"0 1 2 3 /usr""#) && seen.contains(r#""text":"entry""#),
        "{seen}"
    );
    let pid = launched.child.id();
    let kill = Command::new("kill").args(["-TERM", &pid.to_string()]).status();
    assert!(kill.expect("kill is there").success());
    assert_eq!(launched.child.wait().expect("it ends").code(), Some(143));
}

#[test]
fn the_entrypoints_end_is_the_agents_end() {
    let cases = [
        (r#"["sh","-c","echo bye; exit 7"]"#, 7, "bye\n"),
        (r#"["sh","-c","kill -9 $$"]"#, 137, ""),
        (r#"["no-such-program"]"#, 127, "atoll-agent: the entrypoint cannot be started"),
        (r#"["/etc/passwd"]"#, 126, "atoll-agent: the entrypoint cannot be started"),
    ];
    for (entrypoint, code, log) in cases {
        let config = format!(
            r#"{{"entrypoint":{entrypoint},"env":{{"EXECD_ENVS":"/tmp/.atoll-test-none"}}}}"#
        );
        let (ended, logged) = launch(&config, false).end();
        assert_eq!(ended, Some(code), "{entrypoint}: {logged}");
        assert!(logged.starts_with(log), "{entrypoint}: {logged}");
    }
}

#[test]
fn an_unknown_user_is_told_in_the_log() {
    let config = r#"{"entrypoint":["true"],"user":"no-such-user","env":{"EXECD_ENVS":"/tmp/.atoll-test-none"}}"#;
    let (ended, logged) = launch(config, false).end();
    assert_eq!(ended, Some(126));
    assert!(logged.contains("no-such-user"), "{logged}");
}

#[test]
fn as_the_first_process_it_reaps_orphans() {
    if !can_be_init() {
        return; // Needs the right to make namespaces.
    }
    let config = r#"{"entrypoint":["sh","-c","echo $$; exec sleep 1000"],
        "env":{"EXECD_ENVS":"/tmp/.atoll-test-none"}}"#;
    let launched = launch(config, true);
    assert!(launched.call("GET /ping", "").starts_with("HTTP/1.1 200"));
    // Orphans whose parents are gone: the first process inherits and must reap them.
    for _ in 0..20 {
        let seen = launched.run("for i in 1 2 3 4 5; do (true &); done; exit 4");
        assert!(seen.contains(r#""evalue":"4""#), "{seen}");
    }
    let zombies = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l";
    while !launched.run(zombies).contains(r#""text":"0""#) {}
    // The entrypoint is told to stop; what still runs goes with it.
    launched.run(&format!("setsid sleep 1000 >/dev/null 2>&1 & kill {}", launched.log().trim()));
    let (ended, logged) = launched.end();
    assert_eq!(ended, Some(143), "{logged}");
}

#[test]
fn many_commands_leave_nothing_open() {
    if !can_be_init() {
        return; // Needs the right to make namespaces.
    }
    let config = r#"{"entrypoint":["sleep","1000"],"env":{"EXECD_ENVS":"/tmp/.atoll-test-none"}}"#;
    let launched = launch(config, true);
    let opened = launched.call("POST /session", "{}");
    let (_, id) = opened.split_once(r#""session_id":""#).expect("a session");
    let run = format!("POST /session/{}/run", &id[..32]);
    let work = |count: usize| {
        for _ in 0..count {
            let seen = launched.run("echo out; echo err >&2; (true &)");
            assert!(seen.contains("execution_complete"), "{seen}");
            let seen = launched.call(&run, r#"{"command":"x=$((x + 1)); echo $x; exit 3"}"#);
            assert!(seen.contains(r#""evalue":"3""#), "{seen}");
        }
    };
    let look = || {
        let seen = launched.run("ls /proc/1/fd | wc -l; grep -E 'VmRSS|Threads' /proc/1/status");
        let texts =
            seen.split(r#""text":""#).skip(2).map(|text| text.split('"').next().unwrap_or(""));
        let digits =
            texts.map(|text| text.chars().filter(char::is_ascii_digit).collect::<String>());
        let [fds, rss_kib, threads] =
            digits.map(|n| n.parse::<usize>().expect("a number")).collect::<Vec<_>>()[..]
        else {
            panic!("{seen}")
        };
        (fds, rss_kib, threads)
    };
    work(50);
    let before = look();
    work(250);
    // Descriptors of the last commands may take a moment to go.
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut after = look();
    while after.0 > before.0 && Instant::now() < deadline {
        after = look();
    }
    assert!(after.0 <= before.0, "descriptors: {before:?}, then {after:?}");
    assert!(after.1 <= before.1 + 2048, "memory: {before:?}, then {after:?}");
    assert!(after.2 <= before.2 + 4, "threads: {before:?}, then {after:?}");
    let zombies = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l";
    while !launched.run(zombies).contains(r#""text":"0""#) {}
    let seen = launched.call(&run, r#"{"command":"echo runs $x"}"#);
    assert!(seen.contains("runs 300"), "{seen}");
    let closed = launched.call(&format!("DELETE /session/{}", &id[..32]), "");
    assert!(closed.starts_with("HTTP/1.1 200"), "{closed}");
}

#[test]
fn a_claim_gives_other_defaults_to_whoever_has_the_key() {
    let config = r#"{"id":"s","entrypoint":["sleep","1000"],"key":"k1",
        "env":{"A":"1","EXECD_ENVS":"/tmp/.atoll-test-none"},"cwd":"/usr"}"#;
    let launched = launch(config, false);
    assert!(launched.call("GET /atoll/up", "").starts_with("HTTP/1.1 200"));
    let body = r#"{"env":{"B":"2","EXECD_ENVS":"/tmp/.atoll-test-none"},"cwd":"/tmp","user":null}"#;
    let look = "echo [$A$B]; pwd";
    for stranger in ["", "\r\natoll-key: k2", "\r\natoll-key: k"] {
        let answer = launched.call_with("POST /atoll/configure", stranger, body);
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }
    let seen = launched.run(look);
    assert!(seen.contains("[1]") && seen.contains("/usr"), "{seen}");
    for _ in 0..2 {
        let answer = launched.call_with("POST /atoll/configure", "\r\natoll-key: k1", body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let seen = launched.run(look);
        assert!(seen.contains("[2]") && seen.contains("/tmp") && !seen.contains("/usr"), "{seen}");
    }
    assert!(launched.call("GET /atoll/untouched", "").starts_with("HTTP/1.1 200"));
    let claim = "\r\natoll-key: k1\r\natoll-claim: 1";
    assert!(launched.call_with("POST /atoll/configure", claim, body).starts_with("HTTP/1.1 200"));
    assert!(launched.call("GET /atoll/untouched", "").starts_with("HTTP/1.1 409"));
    let broken = launched.call_with("POST /atoll/configure", "\r\natoll-key: k1", "{");
    assert!(broken.starts_with("HTTP/1.1 400"), "{broken}");
    let unknown = launched.call_with(
        "POST /atoll/configure",
        "\r\natoll-key: k1",
        r#"{"user":"no-such-user"}"#,
    );
    assert!(unknown.starts_with("HTTP/1.1 422") && unknown.contains("no-such-user"), "{unknown}");
    assert!(launched.run(look).contains("[2]"), "what was refused changed nothing");
}

#[test]
fn without_a_key_nobody_gives_defaults() {
    let config = r#"{"id":"s","env":{"EXECD_ENVS":"/tmp/.atoll-test-none"}}"#;
    let launched = launch(config, false);
    let answer = launched.call_with("POST /atoll/configure", "\r\natoll-key: ", "{}");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

#[test]
fn it_is_up_when_its_check_succeeds() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let config = format!(
        r#"{{"entrypoint":["sh","-c","echo up > {0}; exec sleep 1000"],
            "env":{{"EXECD_ENVS":"/tmp/.atoll-test-none"}},
            "ready":{{"command":"grep up {0}","every_ms":20,"within_ms":20000}}}}"#,
        file.path().display()
    );
    let launched = launch(&config, false);
    let up = launched.call("GET /atoll/up", "");
    assert!(up.starts_with("HTTP/1.1 200"), "{up}");
    assert_eq!(fs::read_to_string(file.path()).expect("readable"), "up\n");
}

#[test]
fn a_check_that_never_succeeds_is_told_with_its_last_words() {
    let config = r#"{"entrypoint":["sleep","1000"],"env":{"EXECD_ENVS":"/tmp/.atoll-test-none"},
        "ready":{"command":"echo not yet; exit 4","every_ms":20,"within_ms":200}}"#;
    let launched = launch(config, false);
    let up = launched.call("GET /atoll/up", "");
    assert!(up.starts_with("HTTP/1.1 503"), "{up}");
    assert!(up.contains("ended with code 4 and said: not yet"), "{up}");
    assert!(launched.call("GET /ping", "").starts_with("HTTP/1.1 200"), "the agent itself is up");
    let hangs = r#"{"entrypoint":["sleep","1000"],"env":{"EXECD_ENVS":"/tmp/.atoll-test-none"},
        "ready":{"command":"echo stuck; sleep 1000","every_ms":20,"within_ms":300}}"#;
    let up = launch(hangs, false).call("GET /atoll/up", "");
    assert!(up.starts_with("HTTP/1.1 503") && up.contains("stuck"), "{up}");
}
