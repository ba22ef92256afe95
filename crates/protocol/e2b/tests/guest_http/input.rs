use crate::client::{STREAM, Sandbox, decode, encode, framed};
use serde_json::{Value, json};

fn cat() -> Value {
    json!({"process": {"cmd": "cat"}})
}

fn stdin(pid: u64, bytes: impl AsRef<[u8]>) -> Value {
    json!({"process": {"pid": pid}, "input": {"stdin": encode(bytes)}})
}

#[tokio::test]
async fn input_is_open_until_it_is_closed() {
    let sandbox = Sandbox::start().await;
    let mut stream = sandbox.stream("Start", cat()).await;
    let pid = stream.pid().await;
    assert_eq!(sandbox.rpc("SendInput", stdin(pid, "one\n")).await.ok(), json!({}));
    stream.until("stdout", "one\n").await;
    sandbox.rpc("SendInput", stdin(pid, [0xff, 0xfe])).await.ok();
    let event = stream.event().await.unwrap();
    assert_eq!(decode(event["event"]["data"]["stdout"].as_str().unwrap()), [0xff, 0xfe]);
    sandbox.rpc("CloseStdin", json!({"process": {"pid": pid}})).await.ok();
    assert_eq!(stream.end().await["exitCode"], 0);
    sandbox.rpc("SendInput", stdin(pid, "late")).await.refused(404, "not_found");
}

#[tokio::test]
async fn input_that_can_not_be_taken_is_refused() {
    let sandbox = Sandbox::start().await;
    let sleep = json!({"process": {"cmd": "sleep", "args": ["60"]}, "stdin": false});
    let mut stream = sandbox.stream("Start", sleep).await;
    let pid = stream.pid().await;
    sandbox.rpc("SendInput", stdin(pid, "x")).await.refused(500, "internal");
    let pty = json!({"process": {"pid": pid}, "input": {"pty": encode("x")}});
    sandbox.rpc("SendInput", pty).await.refused(500, "internal");
    let none = json!({"process": {"pid": pid}, "input": {}});
    sandbox.rpc("SendInput", none).await.refused(400, "invalid_argument");
    let bad = json!({"process": {"pid": pid}, "input": {"stdin": "*"}});
    sandbox.rpc("SendInput", bad).await.refused(400, "invalid_argument");
    let size = json!({"process": {"pid": pid}, "pty": {"size": {"cols": 9, "rows": 9}}});
    sandbox.rpc("Update", size).await.refused(500, "internal");
    sandbox.rpc("SendSignal", json!({"process": {"pid": pid}, "signal": 9})).await.ok();
    stream.end().await;
    let mut stream = sandbox.stream("Start", cat()).await;
    let pid = stream.pid().await;
    sandbox.rpc("CloseStdin", json!({"process": {"pid": pid}})).await.ok();
    stream.end().await;
}

#[tokio::test]
async fn a_process_that_reads_nothing_holds_its_writer_and_nobody_else() {
    let sandbox = Sandbox::start().await;
    let sleep = json!({"process": {"cmd": "sleep", "args": ["60"]}});
    let mut stream = sandbox.stream("Start", sleep).await;
    let pid = stream.pid().await;
    let late = ("Connect-Timeout-Ms", "200");
    let much = stdin(pid, vec![b'x'; 1 << 20]);
    let answer = sandbox.rpc_with("SendInput", much.clone(), &[late]).await;
    answer.refused(504, "deadline_exceeded");
    let (written, ()) = tokio::join!(sandbox.rpc("SendInput", much), async {
        sandbox.rpc("SendSignal", json!({"process": {"pid": pid}, "signal": 9})).await.ok();
    });
    assert!(written.status == 500 || written.status == 404, "{}", written.text());
    stream.end().await;
}

#[tokio::test]
async fn input_may_come_as_a_stream() {
    let sandbox = Sandbox::start().await;
    let mut stream = sandbox.stream("Start", cat()).await;
    let pid = stream.pid().await;
    let data = |text: &str| json!({"data": {"input": {"stdin": encode(text)}}});
    let messages = [
        json!({"start": {"process": {"pid": pid}}}),
        data("a"),
        json!({"keepalive": {}}),
        data("b\n"),
    ];
    let target = "/process.Process/StreamInput";
    let mut answer = sandbox.send("POST", target, &[STREAM], &framed(&messages)).await;
    assert!(answer.head.contains("content-type: application/connect+json\r\n"));
    assert_eq!(answer.event().await, Some(json!({})));
    assert_eq!(answer.event().await, Some(json!({})), "the end");
    assert_eq!(answer.event().await, None);
    stream.until("stdout", "ab\n").await;
    let refused = async |messages: &[Value], code: &str| {
        let mut answer = sandbox.send("POST", target, &[STREAM], &framed(messages)).await;
        assert_eq!(answer.error().await["code"], code);
    };
    refused(&[data("x")], "invalid_argument").await;
    refused(&[json!({})], "invalid_argument").await;
    refused(&[json!({"start": {"process": {"pid": 4_000_000}}})], "not_found").await;
    sandbox.rpc("CloseStdin", json!({"process": {"pid": pid}})).await.ok();
    stream.end().await;
}

#[tokio::test]
async fn a_large_input_arrives_whole() {
    let sandbox = Sandbox::start().await;
    let wc = json!({"process": {"cmd": "wc", "args": ["-c"]}});
    let mut stream = sandbox.stream("Start", wc).await;
    let pid = stream.pid().await;
    sandbox.rpc("SendInput", stdin(pid, vec![7; 12 << 20])).await.ok();
    sandbox.rpc("CloseStdin", json!({"process": {"pid": pid}})).await.ok();
    stream.until("stdout", "12582912\n").await;
    stream.end().await;
}
