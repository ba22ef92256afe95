use crate::client::{Answer, Sandbox};
use atoll_guest::{Identity, Options, sys};
use serde_json::{Value, json};

async fn open(sandbox: &Sandbox) -> String {
    let answer =
        sandbox.call("POST", "/session", &[("Content-Type", "application/json")], b"").await;
    answer.ok().json()["session_id"].as_str().expect("an id").to_owned()
}

async fn run(sandbox: &Sandbox, id: &str, body: Value) -> Answer {
    sandbox.post(&format!("/session/{id}/run"), body).await
}

async fn stdout(sandbox: &Sandbox, id: &str, command: &str) -> String {
    run(sandbox, id, json!({ "command": command })).await.output("stdout")
}

#[tokio::test]
async fn everything_a_shell_knows_persists() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox).await;
    let first = "mkdir -p 'a b'; cd 'a b'; export X=\"it's $(echo two) \\\" lines\"; y=1\n\
        f() { echo from f $y; }; alias hi='echo hello'; set -o pipefail; shopt -s nullglob\n\
        list=(1 'two words'); set -- one two";
    let answer = run(&sandbox, &id, json!({ "command": first })).await;
    assert_eq!(answer.exit_code(), 0, "{}", answer.text());
    assert_eq!(answer.events()[0]["text"], id.as_str());
    let second = "pwd; echo \"$X\"; f; hi; echo \"${list[1]}\" $2 *.none\n\
        shopt -q nullglob && set -o | grep -q 'pipefail.*on' && echo options; echo oops >&2; echo end";
    let answer = run(&sandbox, &id, json!({ "command": second })).await;
    let directory = sandbox.path("a b").canonicalize().unwrap();
    let want = "it's two \" lines\nfrom f 1\nhello\ntwo words two\noptions\noops\nend";
    assert_eq!(answer.output("stdout"), format!("{}\n{want}", directory.display()));
    assert_eq!(answer.output("stderr"), "");
    stdout(&sandbox, &id, "sleep 1000 & job=$!").await;
    assert_eq!(stdout(&sandbox, &id, "kill $job && ! wait $job && jobs -p | wc -l").await, "0");
    assert_eq!(run(&sandbox, &id, json!({"command": "(exit 9)"})).await.exit_code(), 9);
    assert_eq!(stdout(&sandbox, &id, "echo $?").await, "9");
    assert_eq!(run(&sandbox, &id, json!({"command": "if then"})).await.exit_code(), 2);
    assert_eq!(stdout(&sandbox, &id, "echo $y").await, "1", "a syntax error ends no session");
}

#[tokio::test]
async fn runs_see_no_input_and_no_foreign_descriptor() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox).await;
    let look = "cat; ls /proc/self/fd | tr '\\n' ' '";
    // Whoever runs the tests may have left descriptors open, which every command sees.
    let want = sandbox.post("/command", json!({ "command": look })).await.output("stdout");
    assert_eq!(stdout(&sandbox, &id, look).await, want);
    let text = "echo 'fake 0' >&199; echo 'fake 0' >&9; echo \"$(seq 20000 | tail -1)\"";
    assert!(stdout(&sandbox, &id, text).await.ends_with("20000"));
    let much: String = (0..30_000).map(|n| format!(": {n}\n")).collect();
    assert_eq!(stdout(&sandbox, &id, &(much + "echo long")).await, "long");
    let many = run(&sandbox, &id, json!({"command": "seq 1 50000"})).await.output("stdout");
    assert!(many.lines().eq((1..=50_000).map(|n| n.to_string())));
}

#[tokio::test]
async fn an_exit_ends_the_run_and_not_the_session() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox).await;
    let text =
        "export KEPT=1; also='a \"b\"'; g() { echo g; }; alias hi='echo hello'; cd /usr; exit 7";
    assert_eq!(run(&sandbox, &id, json!({ "command": text })).await.exit_code(), 7);
    assert_eq!(run(&sandbox, &id, json!({"command": "false"})).await.exit_code(), 1);
    let seen = stdout(&sandbox, &id, "echo $KEPT $also; g; hi; pwd").await;
    assert_eq!(seen, "1 a \"b\"\ng\nhello\n/usr");
    let answer = run(&sandbox, &id, json!({"command": "set -e; echo a; (exit 3); echo b"})).await;
    assert_eq!((answer.output("stdout").as_str(), answer.exit_code()), ("a", 3));
    assert_eq!(stdout(&sandbox, &id, "set +e; echo $KEPT").await, "1");
    assert_eq!(stdout(&sandbox, &id, "exec echo replaced").await, "replaced");
    assert_eq!(stdout(&sandbox, &id, "kill -KILL $$; echo never").await, "");
    assert_eq!(stdout(&sandbox, &id, "echo $KEPT").await, "1");
}

#[tokio::test]
async fn a_timeout_ends_the_run_and_spares_state_and_earlier_jobs() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox).await;
    stdout(&sandbox, &id, "state=good; sleep 1000 & echo $! >job").await;
    // Jobs are told apart by the clock of the process table, which ticks every ten milliseconds.
    let tick = || {
        let line = std::fs::read_to_string("/proc/uptime").unwrap();
        // The second number, the time spent idle, moves at other moments.
        line.split_whitespace().next().unwrap().to_owned()
    };
    let before = tick();
    while tick() == before {}
    let text = "state=bad; echo early; sleep 1000 & echo $! >late; setsid sh -c 'echo $$ >away; sleep 1000'; echo never";
    let answer = run(&sandbox, &id, json!({"command": text, "timeout": 300})).await;
    assert_eq!((answer.output("stdout").as_str(), answer.exit_code()), ("early", -1));
    // Ended processes may wait for somebody to reap them.
    let text = "lives() { grep -q 'State:.[^ZX]' /proc/$(cat $1)/status 2>/dev/null; }\n\
        echo $state; lives job && echo job; lives late || lives away || echo gone; kill $(cat job)";
    let answer = run(&sandbox, &id, json!({"command": text, "timeout": 0})).await;
    assert_eq!(answer.output("stdout"), "good\njob\ngone");
}

#[tokio::test]
async fn jobs_print_into_the_next_run() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox).await;
    stdout(&sandbox, &id, "mkfifo gate; { read -r _ <gate; echo from the job; touch said; } &")
        .await;
    std::fs::write(sandbox.path("gate"), "go\n").unwrap();
    while !sandbox.path("said").exists() {
        tokio::task::yield_now().await;
    }
    assert_eq!(stdout(&sandbox, &id, "wait; echo done").await, "from the job\ndone");
}

#[tokio::test]
async fn runs_of_one_session_take_turns() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox).await;
    let bodies: Vec<Value> =
        (0..6).map(|_| json!({"command": "export N=$((N + 1)); echo $N"})).collect();
    let mut streams = Vec::new();
    for body in &bodies {
        let target = format!("/session/{id}/run");
        streams.push(sandbox.send("POST", &target, &[], body.to_string().as_bytes()).await);
    }
    let mut seen = Vec::new();
    for stream in streams {
        seen.push(stream.finish().await.output("stdout"));
    }
    seen.sort();
    assert_eq!(seen, ["1", "2", "3", "4", "5", "6"]);
}

#[tokio::test]
async fn a_run_can_be_interrupted_by_the_sessions_id() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox).await;
    let body = json!({"command": "echo up; sleep 1000"}).to_string();
    let mut stream =
        sandbox.send("POST", &format!("/session/{id}/run"), &[], body.as_bytes()).await;
    stream.until("\"up\"").await;
    sandbox.delete(&format!("/command?id={id}")).await.ok();
    assert_ne!(stream.finish().await.exit_code(), 0);
    sandbox.delete(&format!("/command?id={id}")).await.refused(500, "RUNTIME_ERROR");
}

#[tokio::test]
async fn sessions_start_where_told_and_end_when_deleted() {
    let sandbox = Sandbox::start().await;
    let opened = sandbox.post("/session", json!({"cwd": "/"})).await;
    let id = opened.json()["session_id"].as_str().unwrap().to_owned();
    assert_eq!(run(&sandbox, &id, json!({"command": "pwd"})).await.output("stdout"), "/");
    let answer = run(&sandbox, &id, json!({"command": "pwd", "cwd": "/usr"})).await;
    assert_eq!(answer.output("stdout"), "/usr");
    run(&sandbox, &id, json!({"command": "true", "cwd": "/no/such"}))
        .await
        .refused(400, "INVALID_REQUEST_BODY");
    run(&sandbox, &id, json!({})).await.refused(400, "INVALID_REQUEST_BODY");
    sandbox.delete(&format!("/session/{id}")).await.ok();
    sandbox.delete(&format!("/session/{id}")).await.refused(404, "CONTEXT_NOT_FOUND");
    run(&sandbox, &id, json!({"command": "pwd"})).await.refused(404, "CONTEXT_NOT_FOUND");
    sandbox.post("/session", json!({"cwd": "/no/such"})).await.refused(400, "INVALID_REQUEST_BODY");
}

#[tokio::test]
async fn a_directory_of_a_run_is_a_word_and_not_a_text() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox).await;
    let name = "it's $(touch owned) \"; exit 5\n#";
    std::fs::create_dir(sandbox.path(name)).unwrap();
    let body = json!({"command": "basename \"$PWD\"", "cwd": sandbox.text_path("it's $") + "(touch owned) \"; exit 5\n#"});
    let answer = run(&sandbox, &id, body).await;
    assert_eq!(answer.output("stdout"), name, "{}", answer.text());
    assert!(!sandbox.path("owned").exists());
}

#[tokio::test]
async fn closing_ends_the_shell_and_leaves_no_directory() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox).await;
    let body = json!({"command": "echo $$ $(pwd -P) >at; echo up; sleep 1000"}).to_string();
    let mut stream =
        sandbox.send("POST", &format!("/session/{id}/run"), &[], body.as_bytes()).await;
    stream.until("\"up\"").await;
    let waiting = sandbox.send("POST", &format!("/session/{id}/run"), &[], body.as_bytes()).await;
    sandbox.delete(&format!("/session/{id}")).await.ok();
    assert_ne!(stream.finish().await.exit_code(), 0);
    waiting.finish().await.refused(404, "CONTEXT_NOT_FOUND");
    let at = std::fs::read_to_string(sandbox.path("at")).unwrap();
    let pid = at.split(' ').next().unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "shell {pid} is gone");
    assert!(!std::env::temp_dir().join(format!(".atoll-session-{id}")).exists());
}

#[tokio::test]
async fn a_session_is_the_sandboxs_user_in_everything() {
    if sys::effective_uid() != 0 {
        return; // Only root can become somebody else.
    }
    let user = Identity { uid: 65_534, gid: 65_534, groups: vec![65_534] };
    let options = Options { user: Some(user), cwd: Some("/".into()), ..Options::default() };
    let sandbox = Sandbox::start_with(options).await;
    let id = open(&sandbox).await;
    assert_eq!(stdout(&sandbox, &id, "id -u; id -g; kept=1; exit 0").await, "65534\n65534");
    assert_eq!(stdout(&sandbox, &id, "echo $kept").await, "1");
    // A link in the place of the directory leads the agent nowhere that the user may not go.
    let home = std::env::temp_dir().join(format!(".atoll-session-{id}"));
    let text = format!("rm -rf {0} && ln -s /root {0} && echo moved", home.display());
    assert_eq!(stdout(&sandbox, &id, &text).await, "moved");
    assert_ne!(run(&sandbox, &id, json!({"command": "echo hi"})).await.status, 200);
    assert!(!std::path::Path::new("/root/run").exists());
    sandbox.delete(&format!("/session/{id}")).await.ok();
    assert!(home.symlink_metadata().is_err() && std::path::Path::new("/root").exists());
}
