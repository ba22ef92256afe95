use tempfile::TempDir;

use super::*;
use crate::plan::Tree;
use crate::protocol::Launcher;

struct Place {
    _dir: TempDir,
    layout: Layout,
    sandbox: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let sandbox = layout.sandbox("box");
    let upper = plan::writable(&sandbox, 0).join("upper");
    for folder in [layout.trash(), layout.snapshots(), upper.clone()] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::write(upper.join("note"), "kept").unwrap();
    let tree = Tree { target: "/".into(), lowers: vec!["/image".into()] };
    let base = Base { trees: vec![tree], defaults: atoll_image::ImageConfig::default() };
    let plan = Plan {
        base,
        launcher: Launcher::Native,
        shape: None,
        tenant: String::new(),
        key: String::new(),
    };
    write_json(&sandbox.join(plan::FILE), &plan).unwrap();
    Place { _dir: dir, layout, sandbox }
}

#[tokio::test]
async fn a_snapshot_is_complete_and_goes_in_one_step() {
    let Place { layout, sandbox, .. } = &place();
    take(layout, sandbox, "snap").await.unwrap();
    assert_eq!(list(layout), ["snap"]);
    let files = layout.snapshot("snap").join("files-0");
    assert_eq!(std::fs::read_to_string(files.join("note")).unwrap(), "kept");
    let base: Base = read_json(&layout.snapshot("snap").join(plan::FILE)).unwrap();
    assert_eq!(base.trees[0].lowers, [files, "/image".into()]);

    remove(layout, "snap").unwrap();
    assert!(!layout.snapshot("snap").exists());
    remove(layout, "snap").expect("removing what is gone is fine");
}

#[tokio::test]
async fn a_snapshot_that_fails_leaves_nothing() {
    let Place { layout, sandbox, .. } = &place();
    std::fs::remove_dir_all(plan::writable(sandbox, 0)).unwrap();
    let error = take(layout, sandbox, "snap").await.unwrap_err();
    assert!(error.to_string().contains("copying files"), "{error}");
    assert_eq!(std::fs::read_dir(layout.snapshots()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_snapshot_in_use_stays() {
    let Place { layout, sandbox, .. } = &place();
    take(layout, sandbox, "snap").await.unwrap();
    let base: Base = read_json(&layout.snapshot("snap").join(plan::FILE)).unwrap();
    let plan = Plan {
        base,
        launcher: Launcher::Native,
        shape: None,
        tenant: String::new(),
        key: String::new(),
    };
    write_json(&sandbox.join(plan::FILE), &plan).unwrap();
    let error = remove(layout, "snap").unwrap_err();
    assert!(error.to_string().contains("sandbox box"), "{error}");
    assert_eq!(list(layout), ["snap"]);
}

#[test]
fn drafts_that_a_crash_left_go() {
    let Place { layout, .. } = &place();
    std::fs::create_dir_all(layout.snapshots().join("snap.draft/files-0")).unwrap();
    remove_drafts(layout);
    assert_eq!(std::fs::read_dir(layout.snapshots()).unwrap().count(), 0);
}
