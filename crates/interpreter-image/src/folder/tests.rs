use super::*;
use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_folder_is_of_one_user() {
    // Everybody may enter `/tmp`.
    let parent = tempfile::tempdir_in("/tmp").unwrap();
    set(parent.path(), 0o755);
    let folder = parent.path().join("a/b");
    prepare_folder(&folder).unwrap();
    assert_eq!(mode(&folder), 0o700);
    set(&folder, 0o755);
    prepare_folder(&folder).unwrap();
    assert_eq!(mode(&folder), 0o700, "an empty one is closed");
    fs::write(folder.join("tree"), "").unwrap();
    prepare_folder(&folder).unwrap();
    set(&parent.path().join("a"), 0o755);
    set(&folder, 0o755);
    let refused = prepare_folder(&folder).unwrap_err().to_string();
    assert!(refused.contains("chmod 700"), "{refused}");
    assert_eq!(mode(&folder), 0o755);
    // Nobody could enter it through a closed one.
    set(parent.path(), 0o700);
    prepare_folder(&folder).unwrap();
    assert_eq!(mode(&folder), 0o700);
    let other = rustix::process::geteuid().as_raw() + 1;
    let refused = close(&folder, other).unwrap_err().to_string();
    assert!(refused.contains("belongs to"), "{refused}");
}

#[tokio::test]
async fn who_comes_second_waits() {
    let folder = tempfile::tempdir().unwrap();
    let first = Mutex::new(Some(lock(folder.path(), |_| {}).await.unwrap()));
    let waited = AtomicBool::new(false);
    let tell = |said: &str| {
        assert!(said.contains("another server"), "{said}");
        waited.store(true, Ordering::Relaxed);
        first.lock().unwrap().take();
    };
    let _second = lock(folder.path(), tell).await.unwrap();
    assert!(waited.load(Ordering::Relaxed));
}

#[test]
fn leftovers_go_and_trees_stay() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["tree", ".unfinished-1", ".unfinished-2"] {
        fs::create_dir_all(folder.path().join(name).join("in")).unwrap();
    }
    sweep(folder.path());
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, [folder.path().join("tree")]);
}
