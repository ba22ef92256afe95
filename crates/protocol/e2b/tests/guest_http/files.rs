use crate::client::{Answer, Sandbox, eventually};
use flate2::{
    Compression,
    read::{GzDecoder, GzEncoder},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

const FORM: (&str, &str) = ("Content-Type", "multipart/form-data; boundary=XX");
const OCTETS: (&str, &str) = ("Content-Type", "application/octet-stream");

fn part(name: &str, filename: Option<&str>, content: &str) -> String {
    let filename = filename.map(|name| format!("; filename=\"{name}\"")).unwrap_or_default();
    format!(
        "--XX\r\nContent-Disposition: form-data; name=\"{name}\"{filename}\r\n\r\n{content}\r\n"
    )
}

async fn form(sandbox: &Sandbox, query: &str, parts: &[String]) -> Answer {
    let body = format!("{}--XX--\r\n", parts.concat());
    sandbox.call("POST", &format!("/files{query}"), &[FORM], body.as_bytes()).await
}

async fn put(sandbox: &Sandbox, name: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let target = format!("/files?path={}", sandbox.text_path(name));
    sandbox.call("POST", &target, &[&[OCTETS], headers].concat(), body).await
}

async fn read(sandbox: &Sandbox, name: &str, headers: &[(&str, &str)]) -> Answer {
    let target = format!("/files?path={}", sandbox.text_path(name));
    sandbox.call("GET", &target, headers, b"").await
}

fn zip(bytes: &[u8]) -> Vec<u8> {
    let mut zipped = Vec::new();
    GzEncoder::new(bytes, Compression::fast()).read_to_end(&mut zipped).expect("memory");
    zipped
}

fn written(sandbox: &Sandbox, name: &str) -> Value {
    let base = name.rsplit('/').next().unwrap_or(name);
    json!({"path": sandbox.text_path(name), "name": base, "type": "file"})
}

#[tokio::test]
async fn one_file_in_a_form_goes_where_the_query_says() {
    let sandbox = Sandbox::start().await;
    let query = format!("?path={}", sandbox.text_path("new/dir/a"));
    let answer = form(&sandbox, &query, &[part("file", Some("ignored"), "alpha")]).await;
    assert_eq!(answer.ok(), json!([written(&sandbox, "new/dir/a")]));
    assert_eq!(fs::read_to_string(sandbox.path("new/dir/a")).unwrap(), "alpha");
    assert_eq!(fs::metadata(sandbox.path("new/dir")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(
        fs::metadata(sandbox.path("new/dir/a")).unwrap().permissions().mode() & 0o777,
        0o644
    );
    let twice = [part("file", Some("x"), "1"), part("file", Some("y"), "2")];
    form(&sandbox, &query, &twice).await.refused(400, 400);
}

#[tokio::test]
async fn several_files_in_a_form_name_themselves() {
    let sandbox = Sandbox::start().await;
    let (a, b) = (sandbox.text_path("a"), sandbox.text_path("deep/b"));
    let parts = [
        part("note", None, "not a file"),
        part("file", Some(&a), "one"),
        part("file", Some(&b), ""),
    ];
    let answer = form(&sandbox, "", &parts).await;
    assert_eq!(answer.ok(), json!([written(&sandbox, "a"), written(&sandbox, "deep/b")]));
    assert_eq!(fs::read_to_string(a).unwrap(), "one");
    assert_eq!(fs::read_to_string(b).unwrap(), "");
    form(&sandbox, "", &[part("file", None, "x")]).await.refused(400, 400);
    assert_eq!(form(&sandbox, "", &[]).await.ok(), json!([]));
}

#[tokio::test]
async fn files_belong_to_the_user_that_is_named() {
    let sandbox = Sandbox::start().await;
    let target = format!("/files?username=nobody&path={}", sandbox.text_path("theirs/f"));
    sandbox.call("POST", &target, &[OCTETS], b"x").await.ok();
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|line| line.starts_with("nobody:")).expect("a user nobody");
    let uid: u32 = line.split(':').nth(2).unwrap().parse().unwrap();
    assert_eq!(fs::metadata(sandbox.path("theirs/f")).unwrap().uid(), uid);
    assert_eq!(fs::metadata(sandbox.path("theirs")).unwrap().uid(), uid);
    let target = format!("/files?username=no-such-user&path={}", sandbox.text_path("theirs/f"));
    sandbox.call("POST", &target, &[OCTETS], b"x").await.refused(401, 401);
    sandbox.get(&target).await.refused(401, 401);
}

#[tokio::test]
async fn a_raw_body_replaces_a_file_and_keeps_its_mode() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("f"), "a long old content").unwrap();
    fs::set_permissions(sandbox.path("f"), fs::Permissions::from_mode(0o751)).unwrap();
    assert_eq!(put(&sandbox, "f", &[], b"new").await.ok(), json!([written(&sandbox, "f")]));
    assert_eq!(fs::read_to_string(sandbox.path("f")).unwrap(), "new");
    assert_eq!(fs::metadata(sandbox.path("f")).unwrap().permissions().mode() & 0o777, 0o751);
    std::os::unix::fs::symlink("target", sandbox.path("dangling")).unwrap();
    put(&sandbox, "dangling", &[], b"through").await.ok();
    assert_eq!(fs::read_to_string(sandbox.path("target")).unwrap(), "through");
}

#[tokio::test]
async fn bodies_may_be_zipped_in_both_directions() {
    let sandbox = Sandbox::start().await;
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
    let gzip = ("Content-Encoding", "gzip");
    put(&sandbox, "z", &[gzip], &zip(&content)).await.ok();
    assert!(fs::read(sandbox.path("z")).unwrap() == content);
    let body = format!("{}--XX--\r\n", part("file", None, "in a form"));
    let target = format!("/files?path={}", sandbox.text_path("form"));
    sandbox.call("POST", &target, &[FORM, gzip], &zip(body.as_bytes())).await.ok();
    assert_eq!(fs::read_to_string(sandbox.path("form")).unwrap(), "in a form");
    put(&sandbox, "bad", &[gzip], b"not gzip at all").await.refused(400, 400);
    let cut = zip(&content);
    put(&sandbox, "bad", &[gzip], &cut[..cut.len() - 9]).await.refused(400, 400);
    put(&sandbox, "bad", &[("Content-Encoding", "br")], b"x").await.refused(400, 400);
    assert!(!sandbox.path("bad").exists(), "a refused upload leaves nothing");
    let answer = read(&sandbox, "z", &[("Accept-Encoding", "gzip")]).await;
    assert!(answer.head.contains("content-encoding: gzip"), "{}", answer.head);
    assert!(answer.head.contains("vary: accept-encoding"));
    let mut plain = Vec::new();
    GzDecoder::new(answer.body.as_slice()).read_to_end(&mut plain).unwrap();
    assert!(plain == content && answer.body.len() < content.len());
    let answer = read(&sandbox, "z", &[("Accept-Encoding", "gzip, deflate")]).await;
    assert!(!answer.head.contains("content-encoding") && answer.body == content);
    read(&sandbox, "z", &[("Accept-Encoding", "br, identity;q=0")]).await.refused(406, 406);
}

#[tokio::test]
async fn downloads_describe_themselves() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("page.html"), "<p>").unwrap();
    fs::write(sandbox.path("empty"), "").unwrap();
    fs::write(sandbox.path("a \"b\" é"), [0, 1]).unwrap();
    let page = read(&sandbox, "page.html", &[]).await;
    assert_eq!((page.status, page.text().as_str()), (200, "<p>"));
    assert!(page.head.contains("content-type: text/html; charset=utf-8"), "{}", page.head);
    assert!(page.head.contains("content-disposition: inline; filename=\"page.html\""));
    assert!(page.head.contains("accept-ranges: bytes"));
    let empty = read(&sandbox, "empty", &[]).await;
    assert!(empty.head.contains("content-length: 0"), "{}", empty.head);
    let odd = read(&sandbox, "a%20%22b%22%20%C3%A9", &[]).await;
    assert!(odd.head.contains("content-type: application/octet-stream"), "{}", odd.head);
    assert!(odd.head.contains("filename=\"a _b_ _\""), "{}", odd.head);
    read(&sandbox, "none", &[]).await.refused(404, 404);
    read(&sandbox, "", &[]).await.refused(400, 400);
    sandbox.get("/files").await.refused(400, 400);
    sandbox.get("/files?path=a%00b").await.refused(400, 400);
    sandbox.get("/files?path=/dev/zero").await.refused(400, 400);
    sandbox.get("/files?path=/proc/version/x").await.refused(400, 400);
}

#[tokio::test]
async fn parts_and_conditions_are_honoured() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("f"), "0123456789").unwrap();
    let part = read(&sandbox, "f", &[("Range", "bytes=3-4"), ("Accept-Encoding", "gzip")]).await;
    assert_eq!((part.status, part.text().as_str()), (206, "34"));
    assert!(part.head.contains("content-range: bytes 3-4/10"), "{}", part.head);
    assert!(part.head.contains("content-length: 2"));
    let beyond = read(&sandbox, "f", &[("Range", "bytes=10-")]).await;
    beyond.refused(416, 416);
    assert!(beyond.head.contains("content-range: bytes */10"));
    let whole = read(&sandbox, "f", &[]).await;
    let modified = whole.head.lines().find_map(|line| line.strip_prefix("last-modified: "));
    // The head was put into lower case; dates are not written so.
    let modified = modified.unwrap().to_owned();
    let date =
        httpdate::fmt_http_date(fs::metadata(sandbox.path("f")).unwrap().modified().unwrap());
    assert_eq!(modified, date.to_ascii_lowercase());
    let same = read(&sandbox, "f", &[("If-Modified-Since", &date)]).await;
    assert_eq!((same.status, same.body.len()), (304, 0));
    let early = ("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT");
    read(&sandbox, "f", &[early]).await.refused(412, 412);
}

#[tokio::test]
async fn metadata_is_kept_with_the_file_and_replaced_as_a_whole() {
    let sandbox = Sandbox::start().await;
    let headers = [("X-Metadata-Author", "Ann"), ("X-Metadata-two-words", "b c")];
    let answer = put(&sandbox, "f", &headers, b"x").await.ok();
    assert_eq!(answer[0]["metadata"], json!({"author": "Ann", "two-words": "b c"}));
    let stat = async || {
        let path = json!({"path": sandbox.text_path("f")});
        sandbox.rpc("Stat", path).await.ok()["entry"]["metadata"].clone()
    };
    assert_eq!(stat().await, json!({"author": "Ann", "two-words": "b c"}));
    put(&sandbox, "f", &[("X-Metadata-author", "Bob")], b"y").await.ok();
    assert_eq!(stat().await, json!({"author": "Bob"}));
    put(&sandbox, "f", &[], b"z").await.ok();
    assert_eq!(stat().await, Value::Null);
    let long = "k".repeat(4091);
    put(&sandbox, "f", &[("X-Metadata-author", &long)], b"y").await.refused(400, 400);
    assert_eq!(fs::read_to_string(sandbox.path("f")).unwrap(), "z");
}

#[tokio::test]
async fn uploads_that_make_no_sense_are_refused() {
    let sandbox = Sandbox::start().await;
    fs::create_dir(sandbox.path("d")).unwrap();
    fs::write(sandbox.path("file"), "").unwrap();
    put(&sandbox, "d", &[], b"x").await.refused(400, 400);
    put(&sandbox, "file/below", &[], b"x").await.refused(400, 400);
    sandbox.call("POST", "/files", &[OCTETS], b"x").await.refused(400, 400);
    sandbox.call("POST", "/files?path=~root/x", &[OCTETS], b"x").await.refused(400, 400);
    let text = [("Content-Type", "text/plain")];
    sandbox.call("POST", "/files?path=/tmp/x", &text, b"x").await.refused(400, 400);
    sandbox.call("POST", "/files?path=/tmp/x", &[], b"x").await.refused(400, 400);
    let torn = part("file", Some(&sandbox.text_path("torn")), "half");
    sandbox.call("POST", "/files", &[FORM], torn.trim_end().as_bytes()).await.refused(400, 400);
    assert!(!sandbox.path("torn").exists());
    let no_boundary = [("Content-Type", "multipart/form-data")];
    sandbox.call("POST", "/files", &no_boundary, b"x").await.refused(400, 400);
}

#[tokio::test]
async fn a_sender_that_goes_away_leaves_no_new_file() {
    let sandbox = Sandbox::start().await;
    let mut stream = TcpStream::connect(sandbox.address).await.unwrap();
    let head = format!(
        "POST /envd/files?path={} HTTP/1.1\r\nHost: guest\r\nContent-Type: {}\r\n\
         Content-Length: 9000000\r\n\r\n",
        sandbox.text_path("half"),
        OCTETS.1
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b'x'; 4_000_000]).await.unwrap();
    eventually(async || sandbox.path("half").exists()).await;
    drop(stream);
    eventually(async || !sandbox.path("half").exists()).await;
}

#[tokio::test]
async fn files_are_joined_into_one() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("1"), "one ").unwrap();
    fs::write(sandbox.path("2"), "two").unwrap();
    let compose = async |sources: &[&str], destination: &str| {
        let sources: Vec<String> = sources.iter().map(|name| sandbox.text_path(name)).collect();
        let destination = sandbox.text_path(destination);
        let body = json!({"source_paths": sources, "destination": destination});
        sandbox.call("POST", "/files/compose", &[], body.to_string().as_bytes()).await
    };
    assert_eq!(compose(&["1", "2"], "new/whole").await.ok(), written(&sandbox, "new/whole"));
    assert_eq!(fs::read_to_string(sandbox.path("new/whole")).unwrap(), "one two");
    assert!(!sandbox.path("1").exists() && !sandbox.path("2").exists());
    compose(&["1"], "x").await.refused(404, 404);
    compose(&[], "x").await.refused(400, 400);
    compose(&["new/whole"], "new").await.refused(400, 400);
    sandbox.call("POST", "/files/compose", &[], b"{").await.refused(400, 400);
}
