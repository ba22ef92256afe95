use crate::client::{JSON, STREAM, Sandbox, framed, shell};
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream};

#[tokio::test]
async fn unary_calls_need_json() {
    let sandbox = Sandbox::start().await;
    let call = async |headers: &[(&str, &str)], body: &[u8]| {
        sandbox.call("POST", "/process.Process/List", headers, body).await
    };
    assert_eq!(call(&[JSON], b"{}").await.ok(), json!({"processes": []}));
    let charset = ("Content-Type", "application/json; charset=utf-8");
    assert_eq!(call(&[charset], b"{}").await.status, 200);
    let identity = [JSON, ("Content-Encoding", "identity"), ("Connect-Protocol-Version", "1")];
    assert_eq!(call(&identity, br#"{"unknown": [1]}"#).await.status, 200);
    call(&[], b"{}").await.refused(415, "unknown");
    call(&[STREAM], b"{}").await.refused(415, "unknown");
    call(&[("Content-Type", "application/proto")], b"").await.refused(415, "unknown");
    call(&[JSON, ("Content-Encoding", "gzip")], b"{}").await.refused(501, "unimplemented");
    call(&[JSON], b"").await.refused(400, "invalid_argument");
    call(&[JSON], b"{").await.refused(400, "invalid_argument");
    call(&[JSON], b"[1]").await.refused(400, "invalid_argument");
    let late = [JSON, ("Connect-Timeout-Ms", "soon")];
    call(&late, b"{}").await.refused(400, "invalid_argument");
    let nobody = [JSON, ("Authorization", "Basic bm8tc3VjaC11c2VyOg==")];
    call(&nobody, b"{}").await.refused(401, "unauthenticated");
    let huge = vec![b' '; (8 << 20) + 1];
    call(&[JSON], &huge).await.refused(429, "resource_exhausted");
}

#[tokio::test]
async fn streams_tell_their_errors_inside() {
    let sandbox = Sandbox::start().await;
    let refused = async |headers: &[(&str, &str)], body: &[u8], code: &str| {
        let headers = [&[STREAM], headers].concat();
        let mut answer = sandbox.send("POST", "/process.Process/Start", &headers, body).await;
        assert_eq!(answer.status(), 200);
        assert!(answer.head.contains("content-type: application/connect+json\r\n"), "exactly that");
        let error = answer.error().await;
        assert_eq!(error["code"], code, "{error}");
        assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{error}");
        assert_eq!(answer.event().await, None);
    };
    let good = framed(&[shell("true")]);
    refused(&[], b"", "unimplemented").await;
    refused(&[], &[good.clone(), good.clone()].concat(), "unimplemented").await;
    refused(&[], &good[..good.len() - 1], "invalid_argument").await;
    refused(&[], b"\0\0", "invalid_argument").await;
    refused(&[], &[b"\x01", &good[1..]].concat(), "unimplemented").await;
    refused(&[], &[b"\x02", &good[1..]].concat(), "invalid_argument").await;
    refused(&[], b"\0\0\0\0\x01{", "invalid_argument").await;
    refused(&[], b"\0\xff\xff\xff\xff", "resource_exhausted").await;
    refused(&[], &framed(&[json!({})]), "invalid_argument").await;
    refused(&[], &framed(&[json!({"process": {"cmd": 5}})]), "invalid_argument").await;
    refused(&[("Connect-Timeout-Ms", "-1")], &good, "invalid_argument").await;
    refused(&[("Authorization", "Basic bm8tc3VjaC11c2VyOg==")], &good, "unauthenticated").await;
    let answer = sandbox.call("POST", "/process.Process/Start", &[JSON], b"{}").await;
    answer.refused(415, "unknown");
    let zipped = [STREAM, ("Connect-Content-Encoding", "gzip")];
    let answer = sandbox.call("POST", "/process.Process/Start", &zipped, &good).await;
    answer.refused(501, "unimplemented");
    let plain = [("Connect-Content-Encoding", "identity"), ("Connect-Protocol-Version", "1")];
    assert_eq!(sandbox.run_with(shell("echo fine"), &plain).await.out(), "fine\n");
}

#[tokio::test]
async fn frames_may_come_in_any_pieces_and_slashes_may_double() {
    let sandbox = Sandbox::start().await;
    let mut stream = TcpStream::connect(sandbox.address).await.unwrap();
    let head = "POST /envd//process.Process/Start HTTP/1.1\r\nHost: guest\r\nConnection: close\r\n\
        Content-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in framed(&[shell("echo in pieces")]) {
        stream.write_all(b"1\r\n").await.unwrap();
        stream.write_all(&[byte]).await.unwrap();
        stream.write_all(b"\r\n").await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await.unwrap();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("exit status 0"), "{text}");
}

#[tokio::test]
async fn random_bytes_break_nothing() {
    let sandbox = Sandbox::start().await;
    for seed in 0u8..40 {
        let body: Vec<u8> =
            (0..seed).map(|n| n.wrapping_mul(151) ^ seed.wrapping_mul(31)).collect();
        for method in ["Start", "Connect", "StreamInput"] {
            let target = format!("/process.Process/{method}");
            let answer = sandbox.call("POST", &target, &[STREAM], &body).await;
            assert_eq!(answer.status, 200, "{method} {body:?}");
        }
    }
    assert_eq!(sandbox.run("echo alive").await.out(), "alive\n");
}
