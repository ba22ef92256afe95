use crate::client::{Arriving, Sandbox, encode};
use serde_json::{Value, json};

fn shell() -> Value {
    json!({
        "process": {
            "cmd": "/bin/bash",
            "args": ["--norc", "--noprofile", "-i"],
            "envs": {"TERM": "xterm-256color", "PS1": "ready> "},
        },
        "pty": {"size": {"cols": 77, "rows": 33}},
    })
}

fn typed(pid: u64, text: &str) -> Value {
    json!({"process": {"pid": pid}, "input": {"pty": encode(text)}})
}

/// Waits for a text and the prompt behind it: keys with a meaning of their own that are typed before
/// the shell reads again may be lost.
async fn prompt_after(stream: &mut Arriving, text: &str) {
    let seen = stream.until("pty", text).await;
    if !seen.rsplit(text).next().is_some_and(|after| after.contains("ready>")) {
        stream.until("pty", "ready>").await;
    }
}

#[tokio::test]
async fn a_terminal_has_the_size_that_was_asked_for() {
    let sandbox = Sandbox::start().await;
    let mut stream = sandbox.stream("Start", shell()).await;
    let pid = stream.pid().await;
    sandbox.rpc("SendInput", typed(pid, "stty size\n")).await.ok();
    stream.until("pty", "33 77").await;
    let resize =
        |cols: u32| json!({"process": {"pid": pid}, "pty": {"size": {"cols": cols, "rows": 44}}});
    assert_eq!(sandbox.rpc("Update", resize(88)).await.ok(), json!({}));
    sandbox.rpc("SendInput", typed(pid, "stty size; tty\n")).await.ok();
    stream.until("pty", "44 88").await;
    sandbox.rpc("Update", resize(70_000)).await.refused(400, "invalid_argument");
    sandbox.rpc("Update", json!({"process": {"pid": pid}})).await.ok();
    sandbox.rpc("SendInput", typed(pid, "exit 5\n")).await.ok();
    assert_eq!(stream.end().await["exitCode"], 5);
}

#[tokio::test]
async fn a_terminal_has_no_separate_input() {
    let sandbox = Sandbox::start().await;
    let mut stream = sandbox.stream("Start", shell()).await;
    let pid = stream.pid().await;
    let stdin = json!({"process": {"pid": pid}, "input": {"stdin": encode("x")}});
    sandbox.rpc("SendInput", stdin).await.refused(500, "internal");
    let close = json!({"process": {"pid": pid}});
    sandbox.rpc("CloseStdin", close).await.refused(500, "unknown");
    sandbox.rpc("SendSignal", json!({"process": {"pid": pid}, "signal": 9})).await.ok();
    assert_eq!(stream.end().await["status"], "signal: killed");
}

#[tokio::test]
async fn a_terminal_can_be_left_and_joined_again() {
    let sandbox = Sandbox::start().await;
    let mut stream = sandbox.stream("Start", shell()).await;
    let pid = stream.pid().await;
    sandbox.rpc("SendInput", typed(pid, "word=kept\n")).await.ok();
    drop(stream);
    let mut again = sandbox.stream("Connect", json!({"process": {"pid": pid}})).await;
    again.pid().await;
    sandbox.rpc("SendInput", typed(pid, "echo [$word]\n")).await.ok();
    prompt_after(&mut again, "[kept]").await;
    // The end of input, as typed.
    sandbox.rpc("SendInput", typed(pid, "\u{4}")).await.ok();
    assert_eq!(again.end().await["exitCode"], 0);
}

#[tokio::test]
async fn typing_reaches_the_job_in_front() {
    let sandbox = Sandbox::start().await;
    let mut stream = sandbox.stream("Start", shell()).await;
    let pid = stream.pid().await;
    // Told by the job itself: what the shell prints comes before the job is in front.
    let job = "sh -c 'echo be\"\"gun; exec sleep 60'\n";
    sandbox.rpc("SendInput", typed(pid, job)).await.ok();
    stream.until("pty", "begun").await;
    sandbox.rpc("SendInput", typed(pid, "\u{3}")).await.ok();
    prompt_after(&mut stream, "^C").await;
    sandbox.rpc("SendInput", typed(pid, "echo status $?\n")).await.ok();
    stream.until("pty", "status 130").await;
    sandbox.rpc("SendInput", typed(pid, "exit\n")).await.ok();
    stream.end().await;
}
