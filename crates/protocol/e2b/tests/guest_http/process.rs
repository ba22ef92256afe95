use crate::client::{Ran, Sandbox, eventually, shell};
use atoll_guest::{Identity, Options};
use serde_json::{Value, json};
use std::time::Instant;

fn end(code: i32, exited: bool, status: &str, error: Option<&str>) -> Value {
    let mut end = json!({"exitCode": code, "exited": exited, "status": status});
    error.into_iter().for_each(|error| end["error"] = error.into());
    end
}

#[tokio::test]
async fn output_and_end_come_in_order() {
    let sandbox = Sandbox::start().await;
    let ran = sandbox.run("echo out; echo err >&2").await;
    assert_eq!((ran.out().as_str(), ran.stderr.as_slice()), ("out\n", b"err\n".as_slice()));
    assert_eq!(ran.end, Some(end(0, true, "exit status 0", None)));
    let ran = sandbox.run("exit 3").await;
    assert_eq!(ran.end, Some(end(3, true, "exit status 3", Some("exit status 3"))));
    let ran = sandbox.run("kill -9 $$").await;
    assert_eq!(ran.end, Some(end(-1, false, "signal: killed", Some("signal: killed"))));
    let mut stream = sandbox.stream("Start", shell("true")).await;
    assert!(stream.head.contains("content-type: application/connect+json\r\n"));
    assert!(stream.pid().await > 0);
    stream.end().await;
    assert_eq!(stream.event().await, Some(json!({})), "the end of the stream itself");
    assert_eq!(stream.event().await, None);
}

#[tokio::test]
async fn much_output_arrives_whole_and_bytes_are_bytes() {
    let sandbox = Sandbox::start().await;
    let ran = sandbox.run("head -c 3000000 /dev/zero; printf '\\xe2\\x28'").await;
    assert_eq!(ran.stdout.len(), 3_000_002);
    assert!(ran.stdout.ends_with(b"\0\xe2\x28"));
}

#[tokio::test]
async fn the_environment_is_a_login() {
    let sandbox = Sandbox::start().await;
    let mut message = shell("echo $HOME $USER $LOGNAME $A; pwd; env | grep -c EXECD_ENVS");
    message["process"]["envs"] = json!({"A": "own", "LOGNAME": "mine"});
    let ran = sandbox.run_with(message, &[]).await;
    let workdir = sandbox.text_path("");
    let want = format!("/root root mine own\n{}\n1\n", workdir.trim_end_matches('/'));
    assert_eq!(ran.out(), want);
}

#[tokio::test]
async fn a_named_user_runs_with_its_own_identity() {
    let sandbox = Sandbox::start().await;
    let mut message = shell("id -u; id -g; echo $HOME $USER; ls /proc/self/task | wc -l");
    message["process"]["cwd"] = "/".into();
    let nobody = ("Authorization", "Basic bm9ib2R5Og==");
    let ran = sandbox.run_with(message, &[nobody]).await;
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|line| line.starts_with("nobody:")).expect("a user nobody");
    let fields: Vec<&str> = line.split(':').collect();
    let want = format!("{}\n{}\n{} nobody\n1\n", fields[2], fields[3], fields[5]);
    assert_eq!(ran.out(), want);
}

#[tokio::test]
async fn the_settings_name_the_default_user_with_its_groups() {
    let user = Identity { uid: 4321, gid: 4322, groups: vec![4323, 4324] };
    let options = Options { user: Some(user), cwd: Some("/".into()), ..Options::default() };
    let sandbox = Sandbox::start_with(options).await;
    assert_eq!(sandbox.run("id -u; id -G").await.out(), "4321\n4322 4323 4324\n");
    let root = ("Authorization", "Basic cm9vdDo=");
    assert_eq!(sandbox.run_with(shell("id -u"), &[root]).await.out(), "0\n");
}

#[tokio::test]
async fn directories_and_programs_must_exist() {
    let sandbox = Sandbox::start().await;
    std::fs::write(sandbox.path("file"), "").unwrap();
    let refused = async |process: Value, text: &str| {
        let mut stream = sandbox.stream("Start", json!({ "process": process })).await;
        let error = stream.error().await;
        assert_eq!(error["code"], "invalid_argument", "{error}");
        assert!(error["message"].as_str().is_some_and(|m| m.contains(text)), "{error}");
    };
    let none = sandbox.text_path("none");
    refused(json!({"cmd": "true", "cwd": none}), &format!("cwd '{none}' does not exist")).await;
    refused(json!({"cmd": "true", "cwd": sandbox.text_path("file")}), "not a directory").await;
    refused(json!({"cmd": "no-such-program"}), "no-such-program").await;
    refused(json!({"cmd": none}), "none").await;
    refused(json!({"cmd": ""}), "process.cmd").await;
    refused(json!({"cmd": "a\0b"}), "NUL").await;
    refused(json!({"cmd": "true", "cwd": "~root"}), "home").await;
    let mut message = shell("pwd");
    message["process"]["cwd"] = "~".into();
    assert_eq!(sandbox.run_with(message, &[]).await.out(), "/root\n");
}

#[tokio::test]
async fn a_deadline_kills_even_after_the_client_has_gone() {
    let sandbox = Sandbox::start().await;
    let begun = Instant::now();
    let late = ("Connect-Timeout-Ms", "300");
    let ran = sandbox.run_with(shell("echo begun; sleep 60"), &[late]).await;
    assert_eq!(ran.stdout, b"begun\n");
    assert_eq!(ran.error.as_ref().map(|error| &error["code"]), Some(&"deadline_exceeded".into()));
    assert!(ran.end.is_none() && begun.elapsed().as_secs() < 20);
    let mut stream = sandbox.stream_with("Start", shell("sleep 60"), &[late]).await;
    let pid = stream.pid().await;
    let mut other = sandbox.stream("Connect", json!({"process": {"pid": pid}})).await;
    drop(stream);
    let want = end(-1, false, "signal: killed", Some("signal: killed"));
    assert_eq!(other.end().await, want);
}

#[tokio::test]
async fn a_client_that_leaves_does_not_stop_the_process() {
    let sandbox = Sandbox::start().await;
    let script = "echo one; while [ ! -e go ]; do sleep 0.01; done; echo two; exit 7";
    let mut first = sandbox.stream("Start", shell(script)).await;
    let pid = first.pid().await;
    first.until("stdout", "one\n").await;
    drop(first);
    let mut second = sandbox.stream("Connect", json!({"process": {"pid": pid}})).await;
    assert_eq!(second.pid().await, pid);
    std::fs::write(sandbox.path("go"), "").unwrap();
    assert_eq!(second.until("stdout", "two\n").await, "two\n", "nothing is replayed");
    assert_eq!(second.end().await["exitCode"], 7);
    // For a while the end is told to whoever asks.
    let mut third = sandbox.stream("Connect", json!({"process": {"pid": pid}})).await;
    assert_eq!(third.pid().await, pid);
    assert_eq!(third.event().await.unwrap()["event"]["end"]["exitCode"], 7);
    let list = sandbox.rpc("List", json!({})).await.ok();
    assert_eq!(list["processes"], json!([]), "only what runs is listed");
}

#[tokio::test]
async fn a_deadline_of_a_later_client_ends_its_stream_only() {
    let sandbox = Sandbox::start().await;
    let mut first = sandbox.stream("Start", shell("sleep 60")).await;
    let pid = first.pid().await;
    let selector = json!({"process": {"pid": pid}});
    let late = ("Connect-Timeout-Ms", "50");
    let mut second = sandbox.stream_with("Connect", selector.clone(), &[late]).await;
    assert_eq!(second.error().await["code"], "deadline_exceeded");
    let signal = json!({"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"});
    sandbox.rpc("SendSignal", signal).await.ok();
    assert_eq!(first.end().await["status"], "signal: killed");
}

#[tokio::test]
async fn silence_is_broken_by_keepalives() {
    let sandbox = Sandbox::start().await;
    let often = ("Keepalive-Ping-Interval", "1");
    let mut stream = sandbox.stream_with("Start", shell("sleep 60"), &[often]).await;
    let pid = stream.pid().await;
    assert_eq!(stream.event().await, Some(json!({"event": {"keepalive": {}}})));
    sandbox.rpc("SendSignal", json!({"process": {"pid": pid}, "signal": 9})).await.ok();
    stream.end().await;
}

#[tokio::test]
async fn processes_are_listed_as_asked_for_and_found_by_tag() {
    let sandbox = Sandbox::start().await;
    let mut message = shell("sleep 60");
    message["tag"] = "mine".into();
    message["process"]["envs"] = json!({"A": "1"});
    message["process"]["cwd"] = "/".into();
    let mut stream = sandbox.stream("Start", message).await;
    let pid = stream.pid().await;
    let list = sandbox.rpc("List", json!({})).await.ok();
    let config = json!({
        "cmd": "/bin/bash", "args": ["-c", "sleep 60"], "envs": {"A": "1"}, "cwd": "/",
    });
    let want = json!({"processes": [{"config": config, "pid": pid, "tag": "mine"}]});
    assert_eq!(list, want);
    let by_tag = json!({"process": {"tag": "mine"}});
    let mut other = sandbox.stream("Connect", by_tag).await;
    assert_eq!(other.pid().await, pid);
    let signal = json!({"process": {"tag": "mine"}, "signal": "SIGNAL_SIGTERM"});
    sandbox.rpc("SendSignal", signal).await.ok();
    assert_eq!(stream.end().await["status"], "signal: terminated");
    assert_eq!(other.end().await["status"], "signal: terminated");
}

#[tokio::test]
async fn a_signal_goes_to_the_process_alone() {
    let sandbox = Sandbox::start().await;
    let script = "sleep 60 & echo $! > child; mv child pid; wait";
    let mut stream = sandbox.stream("Start", shell(script)).await;
    let pid = stream.pid().await;
    eventually(async || sandbox.path("pid").exists()).await;
    sandbox.rpc("SendSignal", json!({"process": {"pid": pid}, "signal": 9})).await.ok();
    assert_eq!(stream.end().await["status"], "signal: killed");
    let child = std::fs::read_to_string(sandbox.path("pid")).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap();
    assert!(stat.contains("(sleep) S"), "{stat}");
    sandbox.run(&format!("kill {child}")).await;
}

#[tokio::test]
async fn unknown_processes_and_bad_selectors_are_refused() {
    let sandbox = Sandbox::start().await;
    let gone = json!({"process": {"pid": 4_000_000}, "signal": 9, "input": {"stdin": ""}});
    for method in ["SendSignal", "SendInput", "CloseStdin", "Update"] {
        sandbox.rpc(method, gone.clone()).await.refused(404, "not_found");
        sandbox.rpc(method, json!({"signal": 9})).await.refused(400, "invalid_argument");
        let both = json!({"process": {"pid": 1, "tag": "x"}, "signal": 9});
        sandbox.rpc(method, both).await.refused(400, "invalid_argument");
    }
    let mut stream = sandbox.stream("Connect", json!({"process": {"tag": "none"}})).await;
    assert_eq!(stream.error().await["code"], "not_found");
    let odd = json!({"process": {"pid": 1}, "signal": "SIGNAL_UNSPECIFIED"});
    sandbox.rpc("SendSignal", odd).await.refused(501, "unimplemented");
}

#[tokio::test]
async fn a_background_child_does_not_hold_the_end_back() {
    let sandbox = Sandbox::start().await;
    let ran: Ran = sandbox.run("sleep 60 & echo $!").await;
    assert!(ran.end.is_some());
    sandbox.run(&format!("kill {}", ran.out().trim())).await;
}

#[tokio::test]
async fn many_followers_get_the_same_output() {
    let sandbox = Sandbox::start().await;
    let script = "while [ ! -e go ]; do sleep 0.01; done; seq 1 20000";
    let mut first = sandbox.stream("Start", shell(script)).await;
    let pid = first.pid().await;
    let mut others = Vec::new();
    for _ in 0..5 {
        let mut other = sandbox.stream("Connect", json!({"process": {"pid": pid}})).await;
        other.pid().await;
        others.push(tokio::spawn(async move { other.until("stdout", "\n20000\n").await }));
    }
    std::fs::write(sandbox.path("go"), "").unwrap();
    let want = first.until("stdout", "\n20000\n").await;
    assert_eq!(want.lines().count(), 20000);
    for other in others {
        assert!(other.await.unwrap() == want);
    }
}
