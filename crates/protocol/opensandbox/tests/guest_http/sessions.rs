use crate::client::{Answer, Sandbox};
use serde_json::{Value, json};

async fn open(sandbox: &Sandbox) -> String {
    let answer =
        sandbox.call("POST", "/session", &[("Content-Type", "application/json")], b"").await;
    answer.ok().json()["session_id"].as_str().expect("an id").to_owned()
}

async fn run(sandbox: &Sandbox, id: &str, body: Value) -> Answer {
    sandbox.post(&format!("/session/{id}/run"), body).await
}

#[tokio::test]
async fn directory_exports_and_functions_persist() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox).await;
    let first = json!({"command": "mkdir -p 'a b'; cd 'a b'; export X=\"it's $(echo two) \\\" lines\"; f() { echo from f; }"});
    let answer = run(&sandbox, &id, first).await;
    assert_eq!(answer.exit_code(), 0, "{}", answer.text());
    assert_eq!(answer.events()[0]["text"], id.as_str());
    let answer = run(&sandbox, &id, json!({"command": "pwd; echo \"$X\"; f; echo oops >&2"})).await;
    let directory = sandbox.path("a b").canonicalize().unwrap();
    let want = format!("{}\nit's two \" lines\nfrom f\noops", directory.display());
    assert_eq!(answer.output("stdout"), want);
    assert_eq!(answer.output("stderr"), "");
}

#[tokio::test]
async fn an_exit_ends_the_run_and_not_the_session() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox).await;
    assert_eq!(
        run(&sandbox, &id, json!({"command": "export KEPT=1; exit 7"})).await.exit_code(),
        7
    );
    assert_eq!(run(&sandbox, &id, json!({"command": "false"})).await.exit_code(), 1);
    assert_eq!(run(&sandbox, &id, json!({"command": "echo $KEPT"})).await.output("stdout"), "1");
}

#[tokio::test]
async fn a_killed_run_leaves_the_state_before_it() {
    let sandbox = Sandbox::start().await;
    let id = open(&sandbox).await;
    run(&sandbox, &id, json!({"command": "export STATE=good"})).await.exit_code();
    let body = json!({"command": "export STATE=bad; echo early; sleep 1000", "timeout": 200});
    let answer = run(&sandbox, &id, body).await;
    assert_eq!((answer.output("stdout").as_str(), answer.exit_code()), ("early", -1));
    let answer = run(&sandbox, &id, json!({"command": "echo $STATE", "timeout": 0})).await;
    assert_eq!(answer.output("stdout"), "good");
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
