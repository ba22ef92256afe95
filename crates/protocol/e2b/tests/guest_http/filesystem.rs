use crate::client::Sandbox;
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
};

async fn stat(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.rpc("Stat", json!({"path": sandbox.text_path(name)})).await.ok()["entry"].clone()
}

#[tokio::test]
async fn an_entry_tells_everything() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("f"), "12345").unwrap();
    fs::set_permissions(sandbox.path("f"), fs::Permissions::from_mode(0o640)).unwrap();
    let mut entry = stat(&sandbox, "f").await;
    let modified = entry["modifiedTime"].take();
    let modified: jiff::Timestamp = modified.as_str().unwrap().parse().unwrap();
    let real = fs::metadata(sandbox.path("f")).unwrap().modified().unwrap();
    assert_eq!(modified, jiff::Timestamp::try_from(real).unwrap());
    let want = json!({
        "name": "f", "type": "FILE_TYPE_FILE", "path": sandbox.text_path("f"), "size": "5",
        "mode": 0o640, "permissions": "-rw-r-----", "owner": "root", "group": "root",
        "modifiedTime": null,
    });
    assert_eq!(entry, want);
    let root = sandbox.rpc("Stat", json!({"path": "/"})).await.ok()["entry"].clone();
    assert_eq!((&root["name"], &root["type"]), (&"/".into(), &"FILE_TYPE_DIRECTORY".into()));
    let none = json!({"path": sandbox.text_path("none")});
    sandbox.rpc("Stat", none).await.refused(404, "not_found");
    sandbox.rpc("Stat", json!({"path": "a\0b"})).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn links_show_what_they_lead_to() {
    let sandbox = Sandbox::start().await;
    fs::create_dir(sandbox.path("d")).unwrap();
    symlink("d", sandbox.path("one")).unwrap();
    symlink("one", sandbox.path("two")).unwrap();
    symlink("nowhere", sandbox.path("lost")).unwrap();
    let two = stat(&sandbox, "two").await;
    let real = fs::canonicalize(sandbox.path("d")).unwrap();
    assert_eq!(two["type"], "FILE_TYPE_DIRECTORY");
    assert_eq!(two["mode"], 0o755);
    assert_eq!(two["permissions"], "Lrwxrwxrwx");
    assert_eq!(two["symlinkTarget"], real.to_str().unwrap());
    assert_eq!((&two["isSymlink"], &two["size"]), (&true.into(), &"3".into()));
    let lost = stat(&sandbox, "lost").await;
    assert_eq!(lost["type"], "FILE_TYPE_UNSPECIFIED");
    assert_eq!(lost["symlinkTarget"], sandbox.text_path("nowhere"));
}

#[tokio::test]
async fn paths_begin_at_the_home_or_the_workdir() {
    let sandbox = Sandbox::start().await;
    let path = async |path: &str, headers: &[(&str, &str)]| {
        let answer = sandbox.rpc_with("Stat", json!({"path": path}), headers).await.ok();
        answer["entry"]["path"].as_str().unwrap().to_owned()
    };
    assert_eq!(path("", &[]).await, sandbox.text_path("").trim_end_matches('/'));
    assert_eq!(path("~", &[]).await, "/root");
    assert_eq!(path(".", &[]).await, "/root");
    assert_eq!(path("../tmp", &[]).await, "/tmp");
    let daemon = ("Authorization", "Basic ZGFlbW9uOg==");
    assert_eq!(path(".", &[daemon]).await, "/usr/sbin");
    sandbox.rpc("Stat", json!({"path": "~daemon"})).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn directories_are_made_with_their_parents_for_the_user() {
    let sandbox = Sandbox::start().await;
    let daemon = ("Authorization", "Basic ZGFlbW9uOg==");
    let path = json!({"path": sandbox.text_path("a/b")});
    let made = sandbox.rpc_with("MakeDir", path.clone(), &[daemon]).await.ok();
    assert_eq!(made["entry"]["type"], "FILE_TYPE_DIRECTORY");
    assert_eq!(made["entry"]["permissions"], "drwxr-xr-x");
    assert_eq!(made["entry"]["owner"], "daemon");
    assert_ne!(fs::metadata(sandbox.path("a")).unwrap().uid(), 0);
    sandbox.rpc("MakeDir", path).await.refused(409, "already_exists");
    fs::write(sandbox.path("file"), "").unwrap();
    let file = json!({"path": sandbox.text_path("file")});
    sandbox.rpc("MakeDir", file).await.refused(400, "invalid_argument");
    let below = json!({"path": sandbox.text_path("file/below")});
    sandbox.rpc("MakeDir", below).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn moving_makes_parents_and_replaces_files() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("a"), "new").unwrap();
    let rename = async |from: &str, to: &str| {
        let paths =
            json!({"source": sandbox.text_path(from), "destination": sandbox.text_path(to)});
        sandbox.rpc("Move", paths).await
    };
    let moved = rename("a", "deep/er/b").await.ok();
    assert_eq!(moved["entry"]["path"], sandbox.text_path("deep/er/b"));
    fs::write(sandbox.path("c"), "old").unwrap();
    rename("deep/er/b", "c").await.ok();
    assert_eq!(fs::read_to_string(sandbox.path("c")).unwrap(), "new");
    rename("deep", "moved").await.ok();
    assert!(sandbox.path("moved/er").is_dir());
    rename("none", "x").await.refused(404, "not_found");
    rename("moved", "moved/er/inside").await.refused(500, "internal");
    sandbox.rpc("Move", json!({"source": "/tmp"})).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn listings_are_in_order_and_as_deep_as_asked() {
    let sandbox = Sandbox::start().await;
    fs::create_dir_all(sandbox.path("r/subdir2/deep")).unwrap();
    fs::create_dir_all(sandbox.path("r/subdir1")).unwrap();
    fs::write(sandbox.path("r/file1"), "").unwrap();
    fs::write(sandbox.path("r/subdir1/inner"), "").unwrap();
    symlink("r", sandbox.path("link")).unwrap();
    let list = async |name: &str, message: Value| {
        let mut message = message;
        message["path"] = sandbox.text_path(name).into();
        let listed = sandbox.rpc("ListDir", message).await.ok();
        let root = format!("{}/", sandbox.text_path(name));
        let path = |entry: &Value| {
            entry["path"].as_str().unwrap().strip_prefix(&root).expect("below the root").to_owned()
        };
        listed["entries"].as_array().unwrap().iter().map(path).collect::<Vec<_>>()
    };
    let flat = ["file1", "subdir1", "subdir2"];
    assert_eq!(list("r", json!({})).await, flat);
    assert_eq!(list("r", json!({"depth": 0})).await, flat);
    let deep = ["file1", "subdir1", "subdir1/inner", "subdir2", "subdir2/deep"];
    assert_eq!(list("r", json!({"depth": "2"})).await, deep);
    assert_eq!(list("link", json!({"depth": 9})).await, deep, "paths begin as asked");
    assert_eq!(list("r/subdir2/deep", json!({})).await, [""; 0]);
    let refused = async |name: &str, code: &str, status| {
        let path = json!({"path": sandbox.text_path(name)});
        sandbox.rpc("ListDir", path).await.refused(status, code);
    };
    refused("r/file1", "invalid_argument", 400).await;
    refused("none", "not_found", 404).await;
    sandbox
        .rpc("ListDir", json!({"path": "/", "depth": -1}))
        .await
        .refused(400, "invalid_argument");
}

#[tokio::test]
async fn removing_takes_everything_and_minds_nothing() {
    let sandbox = Sandbox::start().await;
    fs::create_dir_all(sandbox.path("a/b")).unwrap();
    fs::write(sandbox.path("a/b/f"), "").unwrap();
    fs::create_dir(sandbox.path("kept")).unwrap();
    symlink("kept", sandbox.path("link")).unwrap();
    for name in ["a", "a", "link", "none/below"] {
        let path = json!({"path": sandbox.text_path(name)});
        assert_eq!(sandbox.rpc("Remove", path).await.ok(), json!({}), "{name}");
    }
    assert!(!sandbox.path("a").exists() && sandbox.path("kept").is_dir());
    sandbox.rpc("Remove", json!({})).await.refused(400, "invalid_argument");
}
