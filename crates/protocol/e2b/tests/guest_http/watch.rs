use crate::client::{Answer, Arriving, Sandbox, eventually};
use serde_json::{Value, json};
use std::fs;

async fn write(sandbox: &Sandbox, name: &str) -> Answer {
    let target = format!("/files?path={}", sandbox.text_path(name));
    let octets = [("Content-Type", "application/octet-stream")];
    sandbox.call("POST", &target, &octets, b"content").await
}

fn event(name: &str, kind: &str) -> Value {
    json!({"name": name, "type": format!("EVENT_TYPE_{kind}")})
}

/// The next change of a stream.
async fn change(stream: &mut Arriving) -> Value {
    let message = stream.event().await.expect("a change");
    assert!(!message["filesystem"].is_null(), "{message}");
    message["filesystem"].clone()
}

#[tokio::test]
async fn writing_a_new_file_is_exactly_three_events() {
    let sandbox = Sandbox::start().await;
    for recursive in [false, true] {
        let message = json!({"path": sandbox.text_path(""), "recursive": recursive});
        let mut stream = sandbox.stream("WatchDir", message).await;
        assert_eq!(stream.event().await, Some(json!({"start": {}})));
        let name = format!("f-{recursive}");
        write(&sandbox, &name).await.ok();
        fs::create_dir(sandbox.path(&format!("end-{recursive}"))).unwrap();
        for kind in ["CREATE", "CHMOD", "WRITE"] {
            assert_eq!(change(&mut stream).await, event(&name, kind));
        }
        let end = event(&format!("end-{recursive}"), "CREATE");
        assert_eq!(change(&mut stream).await, end, "nothing in between");
    }
}

#[tokio::test]
async fn a_recursive_watch_sees_new_directories() {
    let sandbox = Sandbox::start().await;
    let message = json!({"path": sandbox.text_path(""), "recursive": true});
    let mut stream = sandbox.stream("WatchDir", message).await;
    stream.event().await.unwrap();
    sandbox.rpc("MakeDir", json!({"path": sandbox.text_path("new")})).await.ok();
    assert_eq!(change(&mut stream).await, event("new", "CREATE"));
    assert_eq!(change(&mut stream).await, event("new", "CHMOD"));
    write(&sandbox, "new/f").await.ok();
    for kind in ["CREATE", "CHMOD", "WRITE"] {
        assert_eq!(change(&mut stream).await, event("new/f", kind));
    }
    let paths = json!({
        "source": sandbox.text_path("new/f"), "destination": sandbox.text_path("new/g"),
    });
    sandbox.rpc("Move", paths).await.ok();
    assert_eq!(change(&mut stream).await, event("new/f", "RENAME"));
    assert_eq!(change(&mut stream).await, event("new/g", "CREATE"));
    sandbox.rpc("Remove", json!({"path": sandbox.text_path("new/g")})).await.ok();
    assert_eq!(change(&mut stream).await, event("new/g", "REMOVE"));
}

#[tokio::test]
async fn entries_come_with_events_when_asked_for() {
    let sandbox = Sandbox::start().await;
    let message = json!({"path": sandbox.text_path(""), "include_entry": true});
    let mut stream = sandbox.stream("WatchDir", message).await;
    stream.event().await.unwrap();
    write(&sandbox, "f").await.ok();
    for kind in ["CREATE", "CHMOD", "WRITE"] {
        let change = change(&mut stream).await;
        assert_eq!(change["type"], format!("EVENT_TYPE_{kind}"));
        assert_eq!(change["entry"]["path"], sandbox.text_path("f"), "{change}");
    }
    fs::remove_file(sandbox.path("f")).unwrap();
    assert_eq!(change(&mut stream).await, event("f", "REMOVE"));
}

#[tokio::test]
async fn a_watcher_is_asked_from_time_to_time() {
    let sandbox = Sandbox::start().await;
    let create = json!({"path": sandbox.text_path("")});
    let made = sandbox.rpc("CreateWatcher", create).await.ok();
    let id = made["watcherId"].as_str().unwrap().to_owned();
    assert!(id.starts_with('w') && id.len() == 21, "{id}");
    let events = async |id: &str| {
        let answer = sandbox.rpc("GetWatcherEvents", json!({"watcherId": id})).await;
        answer.ok()["events"].as_array().unwrap().clone()
    };
    assert!(events(&id).await.is_empty());
    write(&sandbox, "f").await.ok();
    let mut seen = Vec::new();
    eventually(async || {
        seen.extend(events(&id).await);
        seen.len() >= 3
    })
    .await;
    assert_eq!(seen, ["CREATE", "CHMOD", "WRITE"].map(|kind| event("f", kind)));
    assert!(events(&id).await.is_empty(), "they are taken once");
    let by_id = json!({"watcher_id": id});
    assert_eq!(sandbox.rpc("RemoveWatcher", by_id.clone()).await.ok(), json!({}));
    sandbox.rpc("RemoveWatcher", by_id.clone()).await.refused(404, "not_found");
    sandbox.rpc("GetWatcherEvents", by_id).await.refused(404, "not_found");
    sandbox.rpc("GetWatcherEvents", json!({})).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn only_directories_that_exist_can_be_watched() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("file"), "").unwrap();
    let path = |name: &str| json!({"path": sandbox.text_path(name)});
    sandbox.rpc("CreateWatcher", path("none")).await.refused(404, "not_found");
    sandbox.rpc("CreateWatcher", path("file")).await.refused(400, "invalid_argument");
    let mut stream = sandbox.stream("WatchDir", path("none")).await;
    assert_eq!(stream.error().await["code"], "not_found");
    let mut stream = sandbox.stream("WatchDir", path("file")).await;
    assert_eq!(stream.error().await["code"], "invalid_argument");
}

#[tokio::test]
async fn a_stream_ends_at_its_deadline_and_pings_in_silence() {
    let sandbox = Sandbox::start().await;
    let headers = [("Connect-Timeout-Ms", "1300"), ("Keepalive-Ping-Interval", "1")];
    let message = json!({"path": sandbox.text_path("")});
    let mut stream = sandbox.stream_with("WatchDir", message, &headers).await;
    assert_eq!(stream.event().await, Some(json!({"start": {}})));
    assert_eq!(stream.event().await, Some(json!({"keepalive": {}})));
    assert_eq!(stream.error().await["code"], "deadline_exceeded");
}

#[tokio::test]
async fn events_that_nobody_takes_are_bounded_and_their_loss_is_told() {
    let sandbox = Sandbox::start().await;
    let made = sandbox.rpc("CreateWatcher", json!({"path": sandbox.text_path("")})).await.ok();
    let by_id = json!({"watcherId": made["watcherId"]});
    for number in 0..9000 {
        fs::create_dir(sandbox.path(&number.to_string())).unwrap();
    }
    let mut seen = 0;
    let mut refusal = None;
    eventually(async || {
        let answer = sandbox.rpc("GetWatcherEvents", by_id.clone()).await;
        match answer.status {
            200 => seen += answer.ok()["events"].as_array().unwrap().len(),
            _ => refusal = Some(answer),
        }
        refusal.is_some() || seen == 9000
    })
    .await;
    // Whether they were taken fast enough is a matter of luck; either way nothing is hidden.
    match refusal {
        Some(refusal) => refusal.refused(429, "resource_exhausted"),
        None => assert_eq!(seen, 9000),
    }
}
