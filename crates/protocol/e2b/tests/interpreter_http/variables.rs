use super::client::{Sandbox, only, printed};
use serde_json::{Value, json};

/// Code that prints a variable or "none", by language.
const SHOW: [(&str, &str); 3] = [
    ("python", "import os; print(os.environ.get('FOO', 'none'))"),
    ("javascript", "console.log(process.env.FOO ?? 'none')"),
    ("bash", "echo \"${FOO-none}\""),
];

async fn show(sandbox: &Sandbox, language: &str, code: &str, env: Value) -> String {
    let request = json!({"code": code, "language": language, "env_vars": env});
    printed(&sandbox.execute(&request).await, "stdout").trim().to_owned()
}

#[tokio::test]
async fn an_execution_s_variables_are_gone_after_it() {
    let sandbox = Sandbox::start().await;
    let odd = "it's \"odd\" \\ $HOME é\nsecond line";
    for (language, code) in SHOW {
        assert_eq!(show(&sandbox, language, code, json!({"FOO": odd})).await, odd, "{language}");
        assert_eq!(show(&sandbox, language, code, Value::Null).await, "none", "{language}");
    }
}

#[tokio::test]
async fn the_sandbox_s_variables_are_seen_overridden_and_back() {
    let sandbox = Sandbox::start_with(&[("FOO", "sandbox")]).await;
    for (language, code) in SHOW {
        assert_eq!(show(&sandbox, language, code, Value::Null).await, "sandbox");
        assert_eq!(show(&sandbox, language, code, json!({"FOO": "own"})).await, "own");
        assert_eq!(show(&sandbox, language, code, Value::Null).await, "sandbox");
    }
}

#[tokio::test]
async fn a_kernel_that_was_up_before_the_claim_sees_the_claim_s_variables() {
    let sandbox = Sandbox::start().await;
    for (language, code) in SHOW {
        assert_eq!(show(&sandbox, language, code, Value::Null).await, "none");
    }
    sandbox.claim_with("FOO", "claimed");
    for (language, code) in SHOW {
        assert_eq!(show(&sandbox, language, code, Value::Null).await, "claimed");
        assert_eq!(show(&sandbox, language, code, json!({"FOO": "own"})).await, "own");
        assert_eq!(show(&sandbox, language, code, Value::Null).await, "claimed");
    }
}

#[tokio::test]
async fn setting_variables_changes_neither_count_nor_lines_nor_names() {
    let sandbox = Sandbox::start().await;
    let request = json!({"code": "1\n\n1/0", "env_vars": {"FOO": "x"}});
    let lines = sandbox.execute(&request).await;
    assert_eq!(lines[0]["execution_count"], 1);
    let traceback = only(&lines, "error")["traceback"].as_str().expect("text").to_owned();
    assert!(traceback.contains("line") && traceback.contains('3'), "{traceback}");
    let lines = sandbox.run("[name for name in dir() if not name.startswith('_')]").await;
    let names = only(&lines, "result")["text"].as_str().expect("text").to_owned();
    assert!(!names.contains("'os'") && !names.contains("'name'"), "{names}");
    assert_eq!(lines[0]["execution_count"], 2);
}
