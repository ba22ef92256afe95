use super::client::{Sandbox, only, printed};
use serde_json::{Value, json};

fn kinds(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["type"].as_str().expect("a type")).collect()
}

#[tokio::test]
async fn code_prints_shows_and_keeps_its_state() {
    let sandbox = Sandbox::start().await;
    let lines = sandbox.run("print(1)").await;
    assert_eq!(kinds(&lines), ["number_of_executions", "stdout", "end_of_execution"]);
    assert_eq!(lines[0]["execution_count"], 1);
    assert_eq!(lines[1]["text"], "1\n");
    assert!(lines[1]["timestamp"].as_str().expect("a moment").contains('T'));

    let lines = sandbox.run("x = 'kept'; x").await;
    let shown = only(&lines, "result");
    assert_eq!((&shown["text"], &shown["is_main_result"]), (&json!("kept"), &json!(true)));
    assert_eq!(only(&sandbox.run("x").await, "result")["text"], "kept");
    assert_eq!(lines[0]["execution_count"], 2);

    let lines = sandbox.run("import sys; print('e', file=sys.stderr)").await;
    assert_eq!(only(&lines, "stderr")["text"], "e\n");
}

#[tokio::test]
async fn an_error_is_told_with_its_place() {
    let sandbox = Sandbox::start().await;
    let lines = sandbox.run("def f():\n    return nope\nf()").await;
    let error = only(&lines, "error");
    assert_eq!(error["name"], "NameError");
    assert_eq!(error["value"], "name 'nope' is not defined");
    assert!(error["traceback"].as_str().expect("text").contains("nope"));
    assert!(only(&sandbox.run("1 +").await, "error")["name"] == "SyntaxError");
    let lines = sandbox.run("input('?')").await;
    assert_eq!(only(&lines, "error")["name"], "StdinNotImplementedError");
}

#[tokio::test]
async fn output_arrives_while_the_code_runs_and_a_slow_reader_loses_nothing() {
    let sandbox = Sandbox::start().await;
    let gate = sandbox.directory().join("gate");
    let code = format!(
        "import os, time\nprint('first', flush=True)\n\
         while not os.path.exists({gate:?}): time.sleep(0.01)\nprint('second')"
    );
    let mut lines = sandbox.begin(&json!({"code": code})).await;
    assert_eq!(lines.until("stdout").await["text"], "first\n");
    std::fs::write(&gate, "").expect("a file");
    assert_eq!(lines.until("stdout").await["text"], "second\n");
    lines.until("end_of_execution").await;

    let code = "for i in range(200): display({'text/plain': str(i) * 50_000}, raw=True)";
    let lines = sandbox.run(code).await;
    let shown = lines.iter().filter(|line| line["type"] == "result");
    assert_eq!(shown.count(), 200);
}

#[tokio::test]
async fn an_output_beyond_the_bound_is_dropped_and_said_to_be() {
    let sandbox = Sandbox::start().await;
    let lines = sandbox.run("display({'text/plain': 'x' * (40 << 20)}, raw=True); 1").await;
    assert!(printed(&lines, "stderr").contains("was dropped"), "{:?}", kinds(&lines));
    assert_eq!(only(&lines, "result")["text"], "1");
}

#[tokio::test]
async fn executions_of_one_context_take_turns() {
    let sandbox = Sandbox::start().await;
    sandbox.run("log = []").await;
    let code = |name: &str| json!({"code": format!("import time\nlog.append('{name}+'); time.sleep(0.05); log.append('{name}-')")});
    let (a, b, c) = (code("a"), code("b"), code("c"));
    tokio::join!(sandbox.execute(&a), sandbox.execute(&b), sandbox.execute(&c));
    let lines =
        sandbox.run("all(x[0] == y[0] for x, y in zip(log[::2], log[1::2])), len(log)").await;
    assert_eq!(only(&lines, "result")["text"], "(True, 6)");
}

#[tokio::test]
async fn the_shell_is_a_language_everywhere() {
    let sandbox = Sandbox::start().await;
    let bash = |code: &str| json!({"code": code, "language": "bash"});
    let lines = sandbox.execute(&bash("x=5; echo \"é $x\"")).await;
    assert_eq!(kinds(&lines), ["number_of_executions", "stdout", "end_of_execution"]);
    assert_eq!(lines[1]["text"], "é 5\n");
    assert_eq!(printed(&sandbox.execute(&bash("echo $x")).await, "stdout"), "5\n");
    let lines = sandbox.execute(&bash("(exit 3)")).await;
    assert_eq!(only(&lines, "error")["value"], "3");
    assert_eq!(lines[0]["execution_count"], 3);
}

#[tokio::test]
async fn rich_values_come_in_their_formats() {
    let sandbox = Sandbox::start().await;
    let code = "import pandas as pd\n\
        pd.DataFrame({'a': [1, 2], 't': pd.to_datetime(['2026-01-02', '2026-01-03'])})";
    let lines = sandbox.run(code).await;
    let shown = only(&lines, "result");
    assert_eq!(shown["data"]["a"], json!([1, 2]));
    assert_eq!(shown["data"]["t"][0], "2026-01-02T00:00:00");
    assert!(shown["html"].as_str().expect("html").contains("<table"));

    let code = "import matplotlib.pyplot as plt\n\
        plt.plot([1, 2, 3], label='a')\nplt.title('T')\nplt.xlabel('Time (s)')\nplt.show()";
    let lines = sandbox.run(code).await;
    let shown = only(&lines, "result");
    assert_eq!((&shown["is_main_result"], &shown["extra"]), (&json!(false), &json!({})));
    assert!(shown["png"].as_str().expect("png").len() > 1000);
    let chart = &shown["chart"];
    assert_eq!((&chart["type"], &chart["title"]), (&json!("line"), &json!("T")));
    assert_eq!((&chart["x_label"], &chart["x_unit"]), (&json!("Time (s)"), &json!("s")));
    assert_eq!(chart["elements"][0]["points"].as_array().expect("points").len(), 3);

    let code = "from PIL import Image\nImage.new('RGB', (4, 4)).save('x.png')\n[{'a': 1}]";
    let lines = sandbox.run(code).await;
    let shown: Vec<&Value> = lines.iter().filter(|line| line["type"] == "result").collect();
    assert!(shown[0]["png"].is_string() && shown[1]["json"] == json!([{"a": 1}]));
}

#[tokio::test]
async fn javascript_and_typescript_run_modules_and_await() {
    let sandbox = Sandbox::start().await;
    let js = |code: &str| json!({"code": code, "language": "js"});
    let lines = sandbox.execute(&js("console.log('Hello')")).await;
    assert_eq!(kinds(&lines), ["number_of_executions", "stdout", "end_of_execution"]);
    assert_eq!(lines[1]["text"], "Hello\n");
    let code = "\n    import { readFileSync } from 'fs'\n    console.log(typeof readFileSync)\n";
    assert_eq!(printed(&sandbox.execute(&js(code)).await, "stdout"), "function\n");
    let lines = sandbox.execute(&js("await Promise.resolve('Hello World!')")).await;
    assert_eq!(only(&lines, "result")["text"], "Hello World!");
    let lines = sandbox.execute(&js("require('path').join('a', 'b')")).await;
    assert_eq!(only(&lines, "result")["text"], "a/b");
    let code = "function twice(n) { return 2 * n }\nclass Pair { sum() { return twice(2) + 1 } }\n\
        const [a, { b, ...rest }] = [1, { b: 2, c: 3 }]; let crypto = require('crypto')\n\
        for (const n of [1]) { await null }";
    sandbox.execute(&js(code)).await;
    let code = "[twice(a), b, rest.c, new Pair().sum(), typeof crypto.createHash]";
    let lines = sandbox.execute(&js(code)).await;
    assert_eq!(only(&lines, "result")["text"], "[ 2, 2, 3, 5, 'function' ]");
    let lines = sandbox.execute(&js("const again = 1;\n\nnope")).await;
    let error = only(&lines, "error");
    assert_eq!(error["name"], "ReferenceError");
    assert!(error["traceback"].as_str().expect("text").contains(":3:"), "{error}");
    assert_eq!(only(&sandbox.execute(&js("const again = 2; again")).await, "result")["text"], "2");
    assert_eq!(only(&sandbox.execute(&js("let = =")).await, "error")["name"], "SyntaxError");
    let typed = json!({"code": "const m: string = 'hi'; console.log(m)", "language": "ts"});
    assert_eq!(printed(&sandbox.execute(&typed).await, "stdout"), "hi\n");
    let typed = json!({"code": "enum Kind { A = 3 }\nKind.A as number", "language": "typescript"});
    assert_eq!(only(&sandbox.execute(&typed).await, "result")["text"], "3");
}
