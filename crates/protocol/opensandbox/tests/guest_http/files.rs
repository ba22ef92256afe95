use crate::client::Sandbox;
use serde_json::json;
use std::{fs, os::unix::fs::PermissionsExt, os::unix::fs::symlink};

#[tokio::test]
async fn info_describes_paths_without_following_links() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("f"), "12345").unwrap();
    fs::set_permissions(sandbox.path("f"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("/nowhere", sandbox.path("l")).unwrap();
    fs::create_dir(sandbox.path("d")).unwrap();
    // Relative paths begin at the sandbox's directory; answers are keyed as asked.
    let info = sandbox.get("/files/info?path=f&path=l&path=d").await.ok().json();
    assert_eq!((&info["f"]["type"], &info["f"]["size"]), (&json!("file"), &json!(5)));
    assert_eq!(info["f"]["mode"], 640);
    assert_eq!(info["f"]["path"], sandbox.text_path("f"));
    assert_eq!((&info["l"]["type"], &info["d"]["type"]), (&json!("symlink"), &json!("directory")));
    for name in ["owner", "group", "modified_at", "created_at"] {
        assert!(info["f"][name].is_string(), "{name}");
    }
    sandbox.get("/files/info?path=f&path=none").await.refused(404, "FILE_NOT_FOUND");
    sandbox.get("/files/info").await.refused(400, "MISSING_QUERY");
}

#[tokio::test]
async fn files_are_removed_but_not_directories() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("a"), "").unwrap();
    fs::create_dir(sandbox.path("d")).unwrap();
    sandbox.delete("/files?path=a&path=missing").await.ok();
    assert!(!sandbox.path("a").exists());
    sandbox.delete("/files?path=d").await.refused(500, "RUNTIME_ERROR");
    sandbox.delete("/files").await.refused(400, "MISSING_QUERY");
    fs::write(sandbox.path("d/x"), "").unwrap();
    sandbox.delete("/directories?path=d&path=missing").await.ok();
    assert!(!sandbox.path("d").exists());
}

#[tokio::test]
async fn moves_make_parents_and_never_overwrite() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("a"), "A").unwrap();
    fs::write(sandbox.path("b"), "B").unwrap();
    sandbox.post("/files/mv", json!([{"src": "a", "dest": "x/y/a"}])).await.ok();
    assert_eq!(fs::read_to_string(sandbox.path("x/y/a")).unwrap(), "A");
    sandbox
        .post("/files/mv", json!([{"src": "b", "dest": "x/y/a"}]))
        .await
        .refused(500, "RUNTIME_ERROR");
    sandbox
        .post("/files/mv", json!([{"src": "none", "dest": "z"}]))
        .await
        .refused(404, "FILE_NOT_FOUND");
    sandbox.post("/files/mv", json!([{"src": "b"}])).await.refused(400, "INVALID_REQUEST_BODY");
}

#[tokio::test]
async fn permissions_change_by_name_and_number() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("f"), "").unwrap();
    let change = json!({"f": {"mode": 600, "owner": null, "group": null}});
    sandbox.post("/files/permissions", change).await.ok();
    assert_eq!(sandbox.get("/files/info?path=f").await.json()["f"]["mode"], 600);
    sandbox.post("/files/permissions", json!({"f": {"mode": 0}})).await.ok();
    assert_eq!(sandbox.get("/files/info?path=f").await.json()["f"]["mode"], 600);
    let named = sandbox
        .post("/files/permissions", json!({"f": {"owner": "nobody", "group": "nogroup"}}))
        .await;
    if named.status == 200 {
        let info = sandbox.get("/files/info?path=f").await.json();
        assert_eq!(
            (&info["f"]["owner"], &info["f"]["group"]),
            (&json!("nobody"), &json!("nogroup"))
        );
    }
    let unknown = json!({"f": {"owner": "no-such-user"}});
    sandbox.post("/files/permissions", unknown).await.refused(400, "INVALID_REQUEST_BODY");
    sandbox
        .post("/files/permissions", json!({"f": {"mode": 999}}))
        .await
        .refused(400, "INVALID_REQUEST_BODY");
    sandbox
        .post("/files/permissions", json!({"none": {"mode": 600}}))
        .await
        .refused(404, "FILE_NOT_FOUND");
}

#[tokio::test]
async fn search_and_list_walk_in_order() {
    let sandbox = Sandbox::start().await;
    for name in ["t/b.txt", "t/a/c.txt", "t/a/d.py", "t/z"] {
        fs::create_dir_all(sandbox.path(name).parent().unwrap()).unwrap();
        fs::write(sandbox.path(name), "").unwrap();
    }
    let names = |answer: serde_json::Value| -> Vec<String> {
        let root = format!("{}/", sandbox.text_path("t"));
        let paths =
            answer.as_array().unwrap().iter().map(|info| info["path"].as_str().unwrap().to_owned());
        paths.map(|path| path.replace(&root, "")).collect()
    };
    let found = sandbox.get("/files/search?path=t&pattern=*.txt").await;
    assert_eq!(names(found.ok().json()), ["a/c.txt", "b.txt"]);
    assert_eq!(names(sandbox.get("/files/search?path=t").await.json()).len(), 4);
    sandbox.get("/files/search?path=none").await.refused(404, "FILE_NOT_FOUND");
    sandbox.get("/files/search?path=t&pattern=%5Bx").await.refused(400, "INVALID_REQUEST_BODY");
    assert_eq!(
        names(sandbox.get("/directories/list?path=t").await.ok().json()),
        ["a", "b.txt", "z"]
    );
    let deep = sandbox.get("/directories/list?path=t&depth=2").await.json();
    assert_eq!(names(deep), ["a", "a/c.txt", "a/d.py", "b.txt", "z"]);
    assert!(names(sandbox.get("/directories/list?path=t&depth=0").await.json()).is_empty());
    sandbox.get("/directories/list?path=none").await.refused(404, "FILE_NOT_FOUND");
    sandbox.get("/directories/list?path=t/z").await.refused(400, "RUNTIME_ERROR");
    symlink(sandbox.path("t"), sandbox.path("link")).unwrap();
    sandbox.get("/directories/list?path=link").await.refused(400, "RUNTIME_ERROR");
}

#[tokio::test]
async fn replace_counts_when_asked() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("f"), "a-b-a").unwrap();
    let edit = json!({"f": {"old": "a", "new": "xx"}});
    let quiet = sandbox.post("/files/replace?verbose=false", edit.clone()).await;
    assert!(quiet.ok().body.is_empty());
    assert_eq!(fs::read_to_string(sandbox.path("f")).unwrap(), "xx-b-xx");
    let counted =
        sandbox.post("/files/replace?verbose=true", json!({"f": {"old": "x", "new": ""}})).await;
    assert_eq!(counted.ok().json(), json!({"f": {"replacedCount": 4}}));
    sandbox
        .post("/files/replace", json!({"f": {"old": "", "new": "y"}}))
        .await
        .refused(400, "INVALID_REQUEST_BODY");
    sandbox
        .post("/files/replace", json!({"none": {"old": "a", "new": "y"}}))
        .await
        .refused(404, "FILE_NOT_FOUND");
}

#[tokio::test]
async fn directories_are_made_with_their_mode() {
    let sandbox = Sandbox::start().await;
    sandbox
        .post("/directories", json!({"a/b": {"mode": 700, "owner": null, "group": null}}))
        .await
        .ok();
    assert_eq!(sandbox.get("/files/info?path=a/b").await.json()["a/b"]["mode"], 700);
    sandbox.post("/directories", json!({"a/b": {"mode": 755}})).await.ok();
    assert_eq!(sandbox.get("/files/info?path=a/b").await.json()["a/b"]["mode"], 700);
}

#[tokio::test]
async fn file_routes_exist_for_a_user_and_obey_its_rights() {
    let sandbox = Sandbox::start().await;
    fs::write(sandbox.path("secret"), "s").unwrap();
    fs::set_permissions(sandbox.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(sandbox.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let read = sandbox.get("/v1/filesystem/0/0/files/download?path=secret").await;
    if read.status != 200 {
        return; // Not root: nobody else can be impersonated.
    }
    let denied = sandbox.get("/v1/filesystem/1234/1234/files/download?path=secret").await;
    denied.refused(500, "RUNTIME_ERROR");
    fs::create_dir(sandbox.path("theirs")).unwrap();
    std::os::unix::fs::chown(sandbox.path("theirs"), Some(1234), Some(1234)).unwrap();
    sandbox.post("/v1/filesystem/1234/1234/directories", json!({"theirs/d": {}})).await.ok();
    let info = sandbox.get("/files/info?path=theirs/d").await.json();
    assert_eq!(
        (&info["theirs/d"]["owner"], &info["theirs/d"]["group"]),
        (&json!("1234"), &json!("1234"))
    );
    // The agent itself is still who it was.
    assert_eq!(sandbox.get("/files/download?path=secret").await.ok().text(), "s");
    sandbox
        .get("/v1/filesystem/x/0/files/info?path=secret")
        .await
        .refused(400, "INVALID_REQUEST_BODY");
    sandbox
        .get("/v1/filesystem/4294967295/0/files/info?path=secret")
        .await
        .refused(400, "INVALID_REQUEST_BODY");
}
