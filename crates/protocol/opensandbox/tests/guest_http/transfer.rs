use crate::client::{Answer, Sandbox};
use std::fs;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const TYPE: (&str, &str) = ("Content-Type", "multipart/form-data; boundary=XX");

fn metadata(json: &str) -> String {
    format!(
        "--XX\r\nContent-Disposition: form-data; name=\"metadata\"; filename=\"metadata\"\r\nContent-Type: application/json\r\n\r\n{json}\r\n"
    )
}

fn file(content: &str) -> String {
    format!(
        "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{content}\r\n"
    )
}

async fn upload(sandbox: &Sandbox, parts: &[String]) -> Answer {
    let body = format!("{}--XX--\r\n", parts.concat());
    sandbox.call("POST", "/files/upload", &[TYPE], body.as_bytes()).await
}

#[tokio::test]
async fn uploads_come_in_pairs_and_make_parents() {
    let sandbox = Sandbox::start().await;
    let parts = [
        metadata(r#"{"path":"new/dir/a","owner":null,"group":null,"mode":755}"#),
        file("alpha"),
        metadata(r#"{"path":"b"}"#),
        file(""),
    ];
    let answer = upload(&sandbox, &parts).await;
    assert!(answer.ok().body.is_empty());
    assert_eq!(fs::read_to_string(sandbox.path("new/dir/a")).unwrap(), "alpha");
    assert_eq!(fs::read_to_string(sandbox.path("b")).unwrap(), "");
    let info = sandbox.get("/files/info?path=new/dir/a").await.json();
    assert_eq!(info["new/dir/a"]["mode"], 755);
    upload(&sandbox, &[metadata(r#"{"path":"new/dir/a"}"#), file("b")]).await.ok();
    assert_eq!(fs::read_to_string(sandbox.path("new/dir/a")).unwrap(), "b");
    assert_eq!(fs::read_dir(sandbox.path("new/dir")).unwrap().count(), 1, "nothing is left over");
}

#[tokio::test]
async fn metadata_may_be_a_plain_field_or_come_first() {
    let sandbox = Sandbox::start().await;
    let plain =
        "--XX\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n{\"path\":\"p\"}\r\n";
    let parts = [plain.to_owned(), metadata(r#"{"path":"q"}"#), file("one"), file("two")];
    upload(&sandbox, &parts).await.ok();
    assert_eq!(fs::read_to_string(sandbox.path("p")).unwrap(), "one");
    assert_eq!(fs::read_to_string(sandbox.path("q")).unwrap(), "two");
}

#[tokio::test]
async fn broken_uploads_are_refused_and_leave_nothing() {
    let sandbox = Sandbox::start().await;
    upload(&sandbox, &[]).await.refused(400, "INVALID_FILE");
    upload(&sandbox, &[file("x")]).await.refused(400, "INVALID_FILE");
    upload(&sandbox, &[metadata(r#"{"path":"a"}"#)]).await.refused(400, "INVALID_FILE");
    upload(&sandbox, &[metadata("{"), file("x")]).await.refused(400, "INVALID_FILE_METADATA");
    upload(&sandbox, &[metadata("{}"), file("x")]).await.refused(400, "INVALID_FILE_METADATA");
    upload(&sandbox, &[metadata(r#"{"path":"a","mode":999}"#), file("x")])
        .await
        .refused(400, "INVALID_FILE_METADATA");
    let torn = format!("{}{}", metadata(r#"{"path":"torn/x"}"#), file("half"));
    let answer = sandbox.call("POST", "/files/upload", &[TYPE], torn.trim_end().as_bytes()).await;
    answer.refused(400, "INVALID_FILE_CONTENT");
    let odd = [metadata(r#"{"path":"odd/a"}"#), file("x"), file("y")];
    upload(&sandbox, &odd).await.refused(400, "INVALID_FILE");
    let late = [metadata(r#"{"path":"late"}"#), file("x"), metadata("{"), file("y")];
    upload(&sandbox, &late).await.refused(400, "INVALID_FILE_METADATA");
    let nobody = [
        metadata(r#"{"path":"b"}"#),
        file("x"),
        metadata(r#"{"path":"c","owner":"no-such-user"}"#),
        file("y"),
    ];
    assert_ne!(upload(&sandbox, &nobody).await.status, 200);
    assert_eq!(names(&sandbox), ["envs"], "a refused upload leaves nothing");
    let other =
        sandbox.call("POST", "/files/upload", &[("Content-Type", "text/plain")], b"x").await;
    other.refused(400, "INVALID_FILE");
    fs::create_dir(sandbox.path("d")).unwrap();
    upload(&sandbox, &[metadata(r#"{"path":"d"}"#), file("x")]).await.refused(500, "RUNTIME_ERROR");
}

/// What lies in the sandbox's directory.
fn names(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path("")).expect("the directory is there").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}

#[tokio::test]
async fn a_refused_upload_spares_what_was_there() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("kept"), "old").unwrap();
    let parts = [metadata(r#"{"path":"kept"}"#), file("new"), file("extra")];
    upload(&sandbox, &parts).await.refused(400, "INVALID_FILE");
    assert_eq!(fs::read_to_string(sandbox.path("kept")).unwrap(), "old");
    // A sender that goes away in the middle: the length promises more than ever comes.
    let half = format!("{}{}", metadata(r#"{"path":"half/x"}"#), file(&"y".repeat(400_000)));
    let length = (half.len() + 100_000).to_string();
    let mut stream = TcpStream::connect(sandbox.address).await.unwrap();
    let head = format!(
        "POST /files/upload HTTP/1.1\r\nHost: guest\r\nContent-Type: {}\r\nContent-Length: {length}\r\n\r\n",
        TYPE.1
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(half.as_bytes()).await.unwrap();
    while !sandbox.path("half").exists() {
        tokio::task::yield_now().await;
    }
    drop(stream);
    while sandbox.path("half").exists() {
        tokio::task::yield_now().await;
    }
    let mut names = names(&sandbox);
    names.sort();
    assert_eq!(names, ["envs", "kept"]);
}

#[tokio::test]
async fn a_connection_carries_one_upload_after_another() {
    let sandbox = Sandbox::start().await;
    let mut stream = TcpStream::connect(sandbox.address).await.unwrap();
    for count in 0..20 {
        let parts = metadata(&format!(r#"{{"path":"n{count}"}}"#)) + &file("x") + "--XX--\r\n";
        let head = format!(
            "POST /files/upload HTTP/1.1\r\nHost: guest\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{parts}\r\n",
            TYPE.1,
            parts.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The last chunk comes when everything that matters has been read.
        tokio::task::yield_now().await;
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "the connection ended");
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
}

#[tokio::test]
async fn large_files_travel_whole_in_both_directions() {
    let sandbox = Sandbox::start().await;
    let content: String = (0..200_000).map(|n| format!("{n:06} ")).collect();
    upload(&sandbox, &[metadata(r#"{"path":"big"}"#), file(&content)]).await.ok();
    let answer = sandbox.get("/files/download?path=big").await;
    assert!(answer.ok().text() == content);
    assert!(answer.head.contains(&format!("content-length: {}", content.len())));
    assert!(answer.head.contains("content-disposition: attachment; filename=\"big\""));
}

#[tokio::test]
async fn downloads_answer_ranges_and_line_windows() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("f"), "l1\nl2\nl3\n").unwrap();
    let range = |range| [("Range", range)];
    let part = sandbox.call("GET", "/files/download?path=f", &range("bytes=3-4"), b"").await;
    assert_eq!((part.status, part.text().as_str()), (206, "l2"));
    assert!(part.head.contains("content-range: bytes 3-4/9"));
    let beyond = sandbox.call("GET", "/files/download?path=f", &range("bytes=9-"), b"").await;
    assert_eq!(beyond.status, 416);
    assert!(beyond.head.contains("content-range: bytes */9"));
    let cases = [
        ("offset=2&limit=1", "l2"),
        ("offset=2", "l2\nl3"),
        ("limit=2", "l1\nl2"),
        ("offset=9", ""),
    ];
    for (query, want) in cases {
        let answer = sandbox.get(&format!("/files/download?path=f&{query}")).await;
        assert_eq!(answer.ok().text(), want, "{query}");
        assert!(answer.head.contains("content-type: text/plain"));
    }
    let both =
        sandbox.call("GET", "/files/download?path=f&offset=1", &range("bytes=0-1"), b"").await;
    both.refused(400, "INVALID_REQUEST_BODY");
    sandbox.get("/files/download?path=none").await.refused(404, "FILE_NOT_FOUND");
    sandbox.get("/files/download").await.refused(400, "MISSING_QUERY");
    sandbox.get("/files/download?path=/dev/zero").await.refused(500, "RUNTIME_ERROR");
}
