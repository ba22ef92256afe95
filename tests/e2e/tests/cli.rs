//! The command line, as a person uses it.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use atoll_e2e::programs::Programs;
use atoll_e2e::server::Server;
use atoll_e2e::world::{KEY, World};
use serde_json::Value;

struct Shell {
    world: World,
    server: Server,
}

impl Shell {
    fn new() -> Self {
        let world = World::new("[runtime.network]\nuplink = \"none\"\n").expect("a world");
        let server = world.serve().expect("a server");
        Self { world, server }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.world.programs().atoll);
        command
            .args(words)
            .env("ATOLL_URL", self.server.url())
            .env("ATOLL_API_KEY", KEY)
            .stdin(Stdio::null());
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the program runs")
    }

    /// Standard output of a command that must succeed.
    fn says(&self, words: &[&str]) -> String {
        let output = self.output(words);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "atoll {}: {error}", words.join(" "));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }
}

#[test]
fn every_verb_does_its_work() {
    let shell = Shell::new();
    let ran = shell.output(&["run", "base", "--", "sh", "-c", "echo out; echo err >&2; exit 5"]);
    assert_eq!(ran.status.code(), Some(5), "the exit code is passed on");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "out\n");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("err\n"));
    let list: Value = serde_json::from_str(&shell.says(&["ls", "-o", "json"])).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(0), "run cleans up: {list}");

    let id = shell.says(&["create", "base", "--env", "COLOUR=blue", "--label", "team=one"]);
    assert_eq!(shell.says(&["exec", &id, "--", "sh", "-c", "echo $COLOUR"]), "blue");
    let table = shell.says(&["ls"]);
    assert!(table.contains(&id) && table.contains("Running"), "{table}");
    let shown = shell.says(&["get", &id]);
    assert!(shown.contains("accepted") && shown.to_lowercase().contains("running"), "{shown}");

    let file = shell.world.folder().join("file");
    std::fs::write(&file, b"bytes\0\xff").expect("a file");
    let file = file.to_str().expect("a path");
    shell.says(&["cp", file, &format!("{id}:/tmp/copy")]);
    let back = shell.output(&["cp", &format!("{id}:/tmp/copy"), "-"]);
    assert_eq!(back.stdout, b"bytes\0\xff");
    let mut from_stdin = shell.command(&["cp", "-", &format!("{id}:/tmp/in")]);
    let mut child = from_stdin.stdin(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(b"typed").expect("it is read");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(shell.says(&["exec", &id, "--", "cat", "/tmp/in"]), "typed");

    shell.says(&["pause", &id]);
    assert!(shell.says(&["ls"]).contains("Paused"));
    let refused = shell.output(&["exec", &id, "--", "true"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("paused"));
    shell.says(&["resume", &id]);
    assert_eq!(shell.says(&["exec", &id, "--", "echo", "again"]), "again");
    shell.says(&["rm", &id]);
    let gone = shell.output(&["get", &id]);
    assert!(!gone.status.success());
    let said = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(said.contains(&id) && said.contains("does not exist"), "{said}");
    shell.world.end(shell.server).expect("nothing is left");
}

#[test]
fn an_unknown_image_is_explained() {
    let shell = Shell::new();
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .expect("a port that is closed again")
        .port();
    let image = format!("127.0.0.1:{port}/nobody/nothing:1");
    let ran = shell.output(&["run", &image, "--", "true"]);
    assert!(!ran.status.success());
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(said.contains("nobody/nothing"), "the image is named: {said}");
    shell.world.end(shell.server).expect("nothing is left");
}

#[test]
fn the_doctor_speaks_in_a_table_and_in_json() {
    let programs = Programs::from_env().expect("the programs");
    let doctor = |words: &[&str]| {
        let output = Command::new(&programs.atoll).args(words).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let table = doctor(&["doctor"]);
    for name in ["kernel", "overlayfs", "cgroups", "user namespaces", "nft"] {
        assert!(table.contains(name), "{table}");
    }
    let json: Value = serde_json::from_str(&doctor(&["doctor", "-o", "json"])).expect("JSON");
    assert!(json.as_array().is_some_and(|checks| checks.len() >= 6), "{json}");
}

#[test]
fn without_privileges_one_message_says_what_to_do() {
    let programs = Programs::from_env().expect("the programs");
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::chown(folder.path(), Some(65_534), Some(65_534)).expect("it is nobody's");
    // A copy where nobody may read it.
    let program = folder.path().join("atoll");
    std::fs::copy(&programs.atoll, &program).expect("a copy");
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder.path().join("data"))
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("root") && said.contains("sudo"), "{said}");
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let shell = Shell::new();
    let second = shell
        .command(&["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(shell.world.data())
        .output()
        .expect("it runs");
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("another atoll server"), "{said}");
    shell.world.end(shell.server).expect("nothing is left");
}
