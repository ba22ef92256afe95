use super::client::{Sandbox, only, printed};
use serde_json::{Value, json};

async fn list(sandbox: &Sandbox) -> Vec<Value> {
    let answer = sandbox.call("GET", "/contexts", &Value::Null).await;
    assert_eq!(answer.status, 200);
    serde_json::from_str(&answer.body).expect("a list")
}

async fn create(sandbox: &Sandbox, request: Value) -> Value {
    let answer = sandbox.call("POST", "/contexts", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).expect("a context")
}

#[tokio::test]
async fn health_says_ok() {
    let sandbox = Sandbox::start().await;
    let answer = sandbox.call("GET", "/health", &Value::Null).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "\"OK\""));
}

#[tokio::test]
async fn contexts_are_made_listed_used_restarted_and_removed() {
    let sandbox = Sandbox::start().await;
    let defaults = list(&sandbox).await;
    let languages: Vec<&Value> = defaults.iter().map(|context| &context["language"]).collect();
    assert_eq!(languages, ["python", "javascript"]);

    let cwd = sandbox.directory().join("elsewhere");
    std::fs::create_dir(&cwd).expect("a directory");
    let context = create(&sandbox, json!({"cwd": cwd})).await;
    assert_eq!((&context["language"], &context["cwd"]), (&json!("python"), &json!(cwd)));
    assert_eq!(list(&sandbox).await.last(), Some(&context));

    let id = &context["id"];
    let in_context = |code: &str| json!({"code": code, "context_id": id});
    let lines = sandbox.execute(&in_context("import os; x = 1; print(os.getcwd())")).await;
    assert_eq!(printed(&lines, "stdout").trim(), cwd.to_string_lossy());
    assert_eq!(only(&sandbox.run("x").await, "error")["name"], "NameError");

    let path = format!("/contexts/{}", id.as_str().expect("an id"));
    let answer = sandbox.call("POST", &format!("{path}/restart"), &Value::Null).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "null"));
    let lines = sandbox.execute(&in_context("x")).await;
    assert_eq!(only(&lines, "error")["value"], "name 'x' is not defined");
    assert_eq!(lines[0]["execution_count"], 1);

    let answer = sandbox.call("DELETE", &path, &Value::Null).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "null"));
    assert_eq!(list(&sandbox).await, defaults);
    let not_found = format!("Context {} not found", id.as_str().expect("an id"));
    for (method, path) in [("DELETE", path.clone()), ("POST", format!("{path}/restart"))] {
        let answer = sandbox.call(method, &path, &Value::Null).await;
        assert_eq!((answer.status, &answer.body), (404, &not_found));
    }
    let answer = sandbox.call("POST", "/execute", &in_context("1")).await;
    assert_eq!((answer.status, &answer.body), (404, &not_found));
}

#[tokio::test]
async fn what_cannot_be_is_refused_in_words() {
    let sandbox = Sandbox::start().await;
    let both = json!({"code": "1", "context_id": "x", "language": "python"});
    let answer = sandbox.call("POST", "/execute", &both).await;
    let text = "Only one of context_id or language can be provided";
    assert_eq!((answer.status, answer.body.as_str()), (400, text));
    let answer = sandbox.call("POST", "/execute", &json!({"code": 1})).await;
    assert_eq!(answer.status, 422);
    let unknown = json!({"code": "1", "language": "java"});
    let answer = sandbox.call("POST", "/execute", &unknown).await;
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains("no kernel for java") && answer.body.contains("IJava"));
    let nowhere = json!({"cwd": sandbox.directory().join("missing")});
    let answer = sandbox.call("POST", "/contexts", &nowhere).await;
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains("missing: "), "{}", answer.body);
    // Neither left anything behind.
    assert_eq!(list(&sandbox).await.len(), 2);
}

#[tokio::test]
async fn a_warm_sandbox_has_its_kernels_up() {
    let sandbox = Sandbox::start().await;
    atoll_e2b::interpreter::warm_up(&sandbox.guest).await.expect("kernels come up");
    let children = || {
        let own = std::process::id();
        std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default()
    };
    let languages: Vec<Value> =
        list(&sandbox).await.iter().map(|c| c["language"].clone()).collect();
    assert_eq!(languages, ["python", "javascript"]);
    let before = children();
    let lines = sandbox.run("print(1)").await;
    // The kernel's own count says that nothing of the warming shows.
    assert_eq!(lines[0]["execution_count"], 1);
    assert_eq!(
        only(&sandbox.run("[n for n in dir() if n in ('shell', 'sys')]").await, "result")["text"],
        "[]"
    );
    assert_eq!(children(), before, "no kernel was started for it");
}
