use super::client::{Sandbox, only};
use serde_json::{Value, json};

const SLEEP: &str = "import time\nprint('at work', flush=True)\ntime.sleep(600)";

#[tokio::test]
async fn a_client_that_goes_away_interrupts_its_code() {
    let sandbox = Sandbox::start().await;
    let mut lines = sandbox.begin(&json!({"code": format!("x = 7\n{SLEEP}")})).await;
    lines.until("stdout").await;
    drop(lines);
    // The same kernel goes on: it knows what was set.
    assert_eq!(only(&sandbox.run("x").await, "result")["text"], "7");

    let code = json!({"code": "y=8; echo at work; sleep 600", "language": "bash"});
    let mut lines = sandbox.begin(&code).await;
    lines.until("stdout").await;
    drop(lines);
    let lines = sandbox.execute(&json!({"code": "echo next", "language": "bash"})).await;
    assert_eq!(only(&lines, "stdout")["text"], "next\n");
}

#[tokio::test]
async fn an_interrupt_from_elsewhere_is_seen_by_the_client() {
    let sandbox = Sandbox::start().await;
    let mut lines = sandbox.begin(&json!({"code": SLEEP})).await;
    lines.until("stdout").await;
    let id = sandbox.guest.kernels().list()[0].id.clone();
    sandbox.guest.kernels().interrupt(&id).await.expect("a context");
    assert_eq!(lines.until("error").await["name"], "KeyboardInterrupt");
    lines.until("end_of_execution").await;
}

#[tokio::test]
async fn javascript_is_interrupted_at_work_and_while_it_waits() {
    let sandbox = Sandbox::start().await;
    let loops = ["while (true) {}", "await new Promise(() => setInterval(() => {}, 1000))"];
    for code in loops {
        let code = format!("var kept = 9; console.log('at work'); {code}");
        let mut lines = sandbox.begin(&json!({"code": code, "language": "js"})).await;
        lines.until("stdout").await;
        let id = sandbox.guest.kernels().list()[0].id.clone();
        sandbox.guest.kernels().interrupt(&id).await.expect("a context");
        assert_eq!(lines.until("error").await["name"], "KeyboardInterrupt");
        lines.until("end_of_execution").await;
        let lines = sandbox.execute(&json!({"code": "kept", "language": "js"})).await;
        assert_eq!(only(&lines, "result")["text"], "9");
    }
}

#[tokio::test]
async fn a_kernel_that_dies_is_replaced() {
    let sandbox = Sandbox::start().await;
    let lines = sandbox.run("import os; print('last words', flush=True); os._exit(3)").await;
    let error = only(&lines, "error");
    assert_eq!(error["name"], "ContextRestarting");
    assert_eq!(error["value"], "Context was restarted");
    assert!(error["traceback"].as_str().expect("text").contains('3'), "{error}");
    assert_eq!(only(&sandbox.run("1 + 1").await, "result")["text"], "2");

    let pid =
        only(&sandbox.run("os = __import__('os'); os.getpid()").await, "result")["text"].clone();
    let pid = pid.as_str().expect("a number").to_owned();
    let killed = std::process::Command::new("kill").args(["-9", &pid]).status();
    assert!(killed.expect("kill runs").success());
    assert_eq!(only(&sandbox.run("2 + 2").await, "result")["text"], "4");
}

#[tokio::test]
async fn code_is_cut_off_by_a_restart_and_by_a_removal() {
    let sandbox = Sandbox::start().await;
    for (method, end) in [("POST", "/restart"), ("DELETE", "")] {
        let mut lines = sandbox.begin(&json!({"code": SLEEP})).await;
        lines.until("stdout").await;
        let id = sandbox.guest.kernels().list()[0].id.clone();
        let answer = sandbox.call(method, &format!("/contexts/{id}{end}"), &Value::Null).await;
        assert_eq!(answer.status, 200);
        assert_eq!(lines.until("error").await["name"], "UnexpectedEndOfExecution");
        lines.until("end_of_execution").await;
    }
    // The default context is made anew.
    assert_eq!(only(&sandbox.run("3").await, "result")["text"], "3");
}

#[tokio::test]
async fn kernels_end_with_their_sandbox() {
    let sandbox = Sandbox::start().await;
    let shown = only(&sandbox.run("import os; os.getpid()").await, "result")["text"].clone();
    let process = format!("/proc/{}/stat", shown.as_str().expect("a number"));
    let id = sandbox.guest.kernels().list()[0].id.clone();
    sandbox.guest.kernels().close(&id).await.expect("a context");
    let ended = async {
        while std::fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z")) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), ended).await.expect("the kernel ends");
}
