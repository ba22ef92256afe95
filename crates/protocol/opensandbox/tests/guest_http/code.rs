use crate::client::{Answer, Sandbox};
use atoll_guest::Options;
use serde_json::{Value, json};
use std::path::Path;

const PYTHON: &str = "ATOLL_KERNEL_PYTHON";

/// A sandbox whose image has the kernels of the code interpreter.
async fn interpreter() -> Sandbox {
    let python = std::env::var(PYTHON).unwrap_or_else(|_| {
        panic!(
            "{PYTHON} must name the Python of a built code-interpreter tree: run the tests with \
             `cargo xtask test unit`, or build one with `cargo run -p atoll-interpreter-image -- \
             FOLDER` and set {PYTHON}=PRINTED/opt/code-interpreter/bin/python3"
        )
    });
    let prefix = Path::new(&python).ancestors().nth(2).expect("PREFIX/bin/python3");
    let path = prefix.join("share/jupyter").to_string_lossy().into_owned();
    let env = [("JUPYTER_PATH".to_owned(), path)].into();
    Sandbox::start_with(Options { env, ..Options::default() }).await
}

async fn run(sandbox: &Sandbox, code: &str, context: Value) -> Answer {
    sandbox.post("/code", json!({"code": code, "context": context})).await
}

fn kinds(answer: &Answer) -> Vec<String> {
    let events = answer.events();
    events.iter().map(|event| event["type"].as_str().expect("a type").to_owned()).collect()
}

fn error(answer: &Answer) -> Value {
    let last = answer.events().pop().expect("events");
    assert_eq!(last["type"], "error", "{}", answer.text());
    last["error"].clone()
}

#[tokio::test]
async fn code_streams_its_output_its_count_and_its_value() {
    let sandbox = interpreter().await;
    let python = json!({"language": "python"});
    let answer = run(&sandbox, "print('a'); print('b', end='')\n2 + 2", python.clone()).await;
    let want = ["init", "execution_count", "stdout", "result", "stdout", "execution_complete"];
    assert_eq!(kinds(&answer), want);
    assert_eq!(answer.output("stdout"), "a\nb");
    let events = answer.events();
    let results = &events[3]["results"];
    assert_eq!((&results["text"], &results["text/plain"]), (&json!("4"), &json!("4")));
    assert_eq!(events[1]["execution_count"], 1);
    assert!(events.iter().all(|event| event["timestamp"].is_i64()));
    assert!(events[5]["execution_time"].is_u64());

    let answer = run(&sandbox, "nope", python).await;
    assert_eq!(error(&answer)["ename"], "NameError");
    assert!(error(&answer)["traceback"].is_array());
}

#[tokio::test]
async fn contexts_keep_their_own_state() {
    let sandbox = interpreter().await;
    let made = sandbox.post("/code/context", json!({"language": "python"})).await;
    let context = made.ok().json();
    assert_eq!(context["language"], "python");
    run(&sandbox, "x = 41", context.clone()).await.ok();
    let answer = run(&sandbox, "print(x + 1)", context.clone()).await;
    assert_eq!(answer.output("stdout"), "42");
    let answer = run(&sandbox, "x", json!({"language": "python"})).await;
    assert_eq!(error(&answer)["ename"], "NameError");

    let id = context["id"].as_str().expect("an id");
    let shown = sandbox.get(&format!("/code/contexts/{id}")).await;
    assert_eq!(shown.ok().json(), context);
    let listed = sandbox.get("/code/contexts?language=python").await.ok().json();
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    assert_eq!(listed[0], context);
    assert_eq!(sandbox.get("/code/contexts?language=bash").await.ok().json(), json!([]));

    sandbox.delete(&format!("/code/contexts/{id}")).await.ok();
    sandbox.get(&format!("/code/contexts/{id}")).await.refused(404, "CONTEXT_NOT_FOUND");
    run(&sandbox, "1", context).await.refused(404, "CONTEXT_NOT_FOUND");
    sandbox.delete("/code/contexts?language=python").await.ok();
    assert_eq!(sandbox.get("/code/contexts").await.ok().json(), json!([]));
}

#[tokio::test]
async fn an_interrupt_ends_the_run_and_keeps_the_context() {
    let sandbox = interpreter().await;
    let code = "import time\nprint('at work', flush=True)\ntime.sleep(600)";
    let body = json!({"code": code, "context": {"language": "python"}}).to_string();
    let mut arriving = sandbox.send("POST", "/code", &[], body.as_bytes()).await;
    let seen = arriving.until("at work").await;
    let at = seen.find("\"text\":\"").expect("an init event") + 8;
    sandbox.delete(&format!("/code?id={}", &seen[at..at + 32])).await.ok();
    assert_eq!(error(&arriving.finish().await)["ename"], "KeyboardInterrupt");
    let answer = run(&sandbox, "print(time.__name__)", json!({"language": "python"})).await;
    assert_eq!(answer.output("stdout"), "time");
}

#[tokio::test]
async fn a_shell_needs_no_kernel_and_code_without_a_language_is_a_command() {
    let sandbox = Sandbox::start().await;
    let bash = json!({"language": "bash"});
    run(&sandbox, "y=6", bash.clone()).await.ok();
    let answer = run(&sandbox, "echo $y; (exit 4)", bash).await;
    assert_eq!((answer.output("stdout").as_str(), answer.exit_code()), ("6", 4));
    let answer = sandbox.post("/code", json!({"code": "echo plain"})).await;
    assert_eq!((answer.output("stdout").as_str(), answer.exit_code()), ("plain", 0));
}

#[tokio::test]
async fn bad_requests_are_refused_before_any_stream() {
    let sandbox = Sandbox::start().await;
    sandbox.post("/code", json!({})).await.refused(400, "INVALID_REQUEST_BODY");
    sandbox.post("/code/context", json!({})).await.refused(400, "INVALID_REQUEST_BODY");
    sandbox.delete("/code").await.refused(400, "MISSING_QUERY");
    sandbox.delete("/code/contexts").await.refused(400, "MISSING_QUERY");
    sandbox.delete("/code?id=none").await.refused(500, "RUNTIME_ERROR");
    let answer = run(&sandbox, "1", json!({"language": "cobol"})).await;
    answer.refused(400, "INVALID_REQUEST_BODY");
    assert!(answer.text().contains("no kernel for cobol"), "{}", answer.text());
}
