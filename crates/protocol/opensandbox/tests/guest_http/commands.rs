use crate::client::Sandbox;
use atoll_guest::Options;
use serde_json::json;
use std::time::{Duration, Instant};

/// The id in the init event of a stream that is still arriving.
fn init_id(seen: &str) -> String {
    let at = seen.find("\"text\":\"").expect("an init event") + 8;
    seen[at..at + 32].to_owned()
}

#[tokio::test]
async fn a_command_streams_init_output_and_one_last_event() {
    let sandbox = Sandbox::start().await;
    let command = json!({"command": "echo out; echo err >&2; echo; printf tail"});
    let answer = sandbox.post("/command", command).await;
    let events = answer.events();
    assert_eq!(events[0]["type"], "init");
    assert_eq!(events[0]["text"].as_str().unwrap().len(), 32);
    assert_eq!(answer.output("stdout"), "out\n\n\ntail");
    assert_eq!(answer.output("stderr"), "err");
    assert_eq!(answer.exit_code(), 0);
    assert!(events.iter().all(|event| event["timestamp"].is_i64()));
    assert!(events.last().unwrap()["execution_time"].is_u64());
}

#[tokio::test]
async fn exit_codes_signals_and_missing_programs_are_errors() {
    let sandbox = Sandbox::start().await;
    let cases = [
        (json!({"command": "exit 3"}), 3),
        (json!({"command": "kill -9 $$"}), -1),
        (json!({"argv": ["/no/such/program"]}), 127),
        (json!({"argv": ["no-such-program"]}), 127),
        (json!({"argv": ["/etc/passwd"]}), 126),
        (json!({"argv": ["printf", "%s|", "a b", "$HOME"]}), 0),
    ];
    for (body, code) in cases {
        let answer = sandbox.post("/command", body.clone()).await;
        assert_eq!(answer.exit_code(), code, "{body}");
        if code != 0 {
            let last = answer.events().pop().unwrap();
            assert_eq!(last["error"]["ename"], "CommandExecError");
            assert!(last["error"]["traceback"][0].is_string());
        } else {
            assert_eq!(answer.output("stdout"), "a b|$HOME|");
        }
    }
}

#[tokio::test]
async fn bad_requests_are_refused_before_any_stream() {
    let sandbox = Sandbox::start().await;
    let long = "x".repeat(200_000);
    let bodies = [
        json!({}),
        json!({"command": ""}),
        json!({"command": "true", "argv": ["true"]}),
        json!({"argv": []}),
        json!({"command": "true", "timeout": 0}),
        json!({"command": "true", "gid": 5}),
        json!({"command": "true", "cwd": "/no/such/dir"}),
        json!({"command": "true", "cwd": "/etc/passwd"}),
        json!({"command": "true", "envs": {"A": 1}}),
        json!({"command": "a\0b"}),
        json!({"command": long}),
        json!({"command": 7}),
    ];
    for body in bodies {
        sandbox.post("/command", body).await.refused(400, "INVALID_REQUEST_BODY");
    }
    let broken = sandbox.call("POST", "/command", &[], b"{").await;
    broken.refused(400, "INVALID_REQUEST_BODY");
}

#[tokio::test]
async fn directory_and_environment_reach_the_command() {
    let mut options = Options::default();
    options.env.insert("FROM".to_owned(), "sandbox".to_owned());
    let sandbox = Sandbox::start_with(options).await;
    std::fs::create_dir(sandbox.path("sub")).unwrap();
    let run = |command: &str| json!({"command": command, "cwd": "sub", "envs": {"MINE": "x y"}});
    let answer = sandbox
        .post("/command", run("pwd; echo $FROM; echo \"$MINE\"; cat; echo ${HOME:+home}"))
        .await;
    let want =
        format!("{}\nsandbox\nx y\nhome", sandbox.path("sub").canonicalize().unwrap().display());
    assert_eq!(answer.output("stdout"), want);
    let set = sandbox.post("/command", run("echo LATER=kept >> \"$EXECD_ENVS\"")).await;
    assert_eq!(set.exit_code(), 0);
    assert_eq!(sandbox.post("/command", run("echo $LATER")).await.output("stdout"), "kept");
}

#[tokio::test]
async fn a_timeout_kills_the_group_and_keeps_what_was_printed() {
    let sandbox = Sandbox::start().await;
    let body = json!({"command": "echo early; sleep 1000 & sleep 1000", "timeout": 200});
    let answer = sandbox.post("/command", body).await;
    assert_eq!(answer.output("stdout"), "early");
    assert_eq!(answer.exit_code(), -1);
    let last = answer.events().pop().unwrap();
    assert_eq!(last["error"]["traceback"][0], "timed out after 200 ms");
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_does_not_hold_the_answer() {
    let sandbox = Sandbox::start().await;
    let pid_file = sandbox.text_path("pid");
    let command = format!("(sleep 1000; echo late) & echo $! > {pid_file}; echo done");
    let answer = sandbox.post("/command", json!({"command": command})).await;
    assert_eq!((answer.output("stdout").as_str(), answer.exit_code()), ("done", 0));
    let pid = std::fs::read_to_string(&pid_file).unwrap();
    let end = json!({"command": format!("kill $(ps -o pid= --ppid {0}) {0}", pid.trim())});
    assert_eq!(sandbox.post("/command", end).await.exit_code(), 0, "the grandchild lives on");
}

#[tokio::test]
async fn long_commands_never_delay_others() {
    let sandbox = Sandbox::start().await;
    let quick = json!({"command": "true"});
    let baseline = |samples: usize| {
        let (sandbox, quick) = (&sandbox, quick.clone());
        async move {
            let mut best = Duration::MAX;
            for _ in 0..samples {
                let begun = Instant::now();
                sandbox.get("/ping").await.ok();
                sandbox.post("/command", quick.clone()).await.exit_code();
                best = best.min(begun.elapsed());
            }
            best
        }
    };
    let before = baseline(20).await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let body = json!({"command": "echo up; sleep 1000"}).to_string();
        let mut stream = sandbox.send("POST", "/command", &[], body.as_bytes()).await;
        let seen = stream.until("\"up\"").await;
        streams.push((init_id(&seen), stream));
    }
    let during = baseline(20).await;
    assert!(during < before * 5, "{before:?} alone, {during:?} beside long commands");
    for (id, stream) in streams {
        let status = sandbox.get(&format!("/command/status/{id}")).await.json();
        assert_eq!((status["running"].as_bool(), &status["exit_code"]), (Some(true), &json!(null)));
        sandbox.delete(&format!("/command?id={id}")).await.ok();
        assert_eq!(stream.finish().await.exit_code(), -1);
        let status = sandbox.get(&format!("/command/status/{id}")).await.json();
        assert_eq!(status["running"], false);
        assert_eq!(status["error"], "killed by signal 15");
        sandbox.delete(&format!("/command?id={id}")).await.refused(500, "RUNTIME_ERROR");
    }
}

#[tokio::test]
async fn a_client_that_leaves_does_not_stop_its_command() {
    let sandbox = Sandbox::start().await;
    let (go, done) = (sandbox.text_path("go"), sandbox.text_path("done"));
    let command =
        format!("mkfifo {go}; echo up; read x < {go}; head -c 300000 /dev/zero; echo > {done}");
    let body = json!({"command": command}).to_string();
    let mut stream = sandbox.send("POST", "/command", &[], body.as_bytes()).await;
    let id = init_id(&stream.until("\"up\"").await);
    drop(stream);
    sandbox.post("/command", json!({"command": format!("echo > {go}")})).await.exit_code();
    let status = format!("/command/status/{id}");
    while sandbox.get(&status).await.json()["running"] == true {}
    assert_eq!(sandbox.get(&status).await.json()["exit_code"], 0);
    assert!(std::path::Path::new(&done).exists());
}

#[tokio::test]
async fn a_background_command_answers_at_once_and_logs_by_cursor() {
    let sandbox = Sandbox::start().await;
    let go = sandbox.text_path("go");
    let command = format!("mkfifo {go}; echo one; echo two >&2; read x < {go}; echo three");
    let answer = sandbox.post("/command", json!({"command": command, "background": true})).await;
    let events = answer.events();
    assert_eq!(events.len(), 2);
    let id = events[0]["text"].as_str().unwrap().to_owned();
    let logs = format!("/command/{id}/logs");
    while sandbox.get(&logs).await.text() != "one\ntwo\n" {}
    assert!(sandbox.get(&logs).await.head.contains("execd-commands-tail-cursor: 8"));
    sandbox.post("/command", json!({"command": format!("echo > {go}")})).await.exit_code();
    let status = format!("/command/status/{id}");
    while sandbox.get(&status).await.json()["running"] == true {}
    let rest = sandbox.get(&format!("{logs}?cursor=8")).await;
    assert_eq!(rest.ok().text(), "three\n");
    assert!(rest.head.contains("execd-commands-tail-cursor: 14"));
    assert_eq!(sandbox.get(&format!("{logs}?cursor=99")).await.ok().text(), "");
    let status = sandbox.get(&status).await.json();
    assert_eq!(status["content"], command);
    assert!(status["finished_at"].as_str() >= status["started_at"].as_str());
    sandbox.get(&format!("{logs}?cursor=x")).await.refused(400, "INVALID_REQUEST_BODY");
}

#[tokio::test]
async fn unknown_ids_are_told_apart_from_missing_ones() {
    let sandbox = Sandbox::start().await;
    sandbox.delete("/command").await.refused(400, "MISSING_QUERY");
    sandbox.delete("/command?id=nope").await.refused(500, "RUNTIME_ERROR");
    sandbox.get("/command/status/nope").await.refused(404, "CONTEXT_NOT_FOUND");
    sandbox.get("/command/nope/logs").await.refused(400, "CONTEXT_NOT_FOUND");
    let foreground = sandbox.post("/command", json!({"command": "true"})).await;
    let id = foreground.events()[0]["text"].as_str().unwrap().to_owned();
    sandbox.get(&format!("/command/{id}/logs")).await.refused(400, "INVALID_REQUEST_BODY");
}

#[tokio::test]
async fn an_interrupt_ends_what_ignores_it_after_the_grace() {
    let sandbox = Sandbox::start().await;
    let body =
        json!({"command": "trap '' TERM; echo up; while :; do sleep 1000; done"}).to_string();
    let mut stream = sandbox.send("POST", "/command", &[], body.as_bytes()).await;
    let id = init_id(&stream.until("\"up\"").await);
    let begun = Instant::now();
    sandbox.delete(&format!("/command?id={id}")).await.ok();
    assert_eq!(stream.finish().await.exit_code(), -1);
    assert!(begun.elapsed() >= Duration::from_secs(3));
    assert_eq!(
        sandbox.get(&format!("/command/status/{id}")).await.json()["error"],
        "killed by signal 9"
    );
}

#[tokio::test]
async fn a_command_can_run_as_another_user() {
    let sandbox = Sandbox::start().await;
    let body = json!({"command": "id -u; id -g; id -G", "uid": 1234, "gid": 4321, "cwd": "/"});
    let answer = sandbox.post("/command", body).await;
    // Only root can become somebody else; for others the refusal must be reported, not hidden.
    match answer.exit_code() {
        0 => assert_eq!(answer.output("stdout"), "1234\n4321\n4321"),
        code => assert_eq!(code, 126),
    }
}

#[tokio::test]
async fn large_output_arrives_complete() {
    let sandbox = Sandbox::start().await;
    let command =
        "for i in $(seq 20000); do echo line $i; done; head -c 200000 /dev/zero | tr '\\0' x";
    let answer = sandbox.post("/command", json!({"command": command})).await;
    let output = answer.output("stdout");
    assert!(output.contains("line 1\nline 2\n") && output.contains("line 20000\n"));
    assert_eq!(output.matches('x').count(), 200_000);
}

#[tokio::test]
async fn metrics_answer_at_once_and_within_bounds() {
    let sandbox = Sandbox::start().await;
    let metrics = sandbox.get("/metrics").await.ok().json();
    let number = |name: &str| metrics[name].as_f64().unwrap();
    assert!(number("cpu_count") > 0.0);
    assert!((0.0..=100.0).contains(&number("cpu_used_pct")));
    assert!(0.0 < number("mem_used_mib") && number("mem_used_mib") <= number("mem_total_mib"));
    assert!(metrics["timestamp"].is_i64());
    let mut watch = sandbox.send("GET", "/metrics/watch", &[], b"").await;
    watch.until("}\n").await;
}

#[tokio::test]
async fn a_token_is_demanded_where_one_is_set() {
    let options = Options { access_token: Some("secret".to_owned()), ..Options::default() };
    let sandbox = Sandbox::start_with(options).await;
    let ping = sandbox.get("/ping").await;
    assert!(ping.ok().head.contains("atoll-agent-generation: 1"));
    assert!(ping.body.is_empty());
    for headers in
        [&[][..], &[("X-EXECD-ACCESS-TOKEN", "wrong!")], &[("X-EXECD-ACCESS-TOKEN", "secre")]]
    {
        let answer = sandbox.call("GET", "/metrics", headers, b"").await;
        assert_eq!(answer.status, 401);
        assert!(answer.json()["error"].is_string());
    }
    sandbox.call("GET", "/metrics", &[("X-EXECD-ACCESS-TOKEN", "secret")], b"").await.ok();
}

#[tokio::test]
async fn parts_that_are_not_offered_say_so() {
    let sandbox = Sandbox::start().await;
    let capabilities = sandbox.get("/v1/isolated/capabilities").await.ok().json();
    assert_eq!(capabilities["available"], false);
    assert!(capabilities["message"].is_string());
    sandbox.post("/v1/isolated/session", json!({})).await.refused(503, "NOT_SUPPORTED");
    sandbox.get("/nowhere").await.refused(404, "UNKNOWN");
}
