use super::*;
use std::os::unix::fs::PermissionsExt as _;

#[tokio::test]
async fn a_tree_that_others_could_change_is_refused_and_the_remedy_told() {
    // Everybody may enter `/tmp`.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let tree = folder.path().join(atoll_interpreter_image::recipe_digest());
    std::fs::create_dir(&tree).unwrap();
    let mut config = Config::default();
    config.code_interpreter.folder = Some(folder.path().to_owned());
    for build in [true, false] {
        config.code_interpreter.build = build;
        for (mode, usable) in [(0o755, false), (0o700, true)] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.path(), permissions).unwrap();
            let mut told = Interpreter::start(&config).template().state;
            let settled = |now: &Progress| !matches!(now, Progress::Building(_));
            let settled = told.wait_for(settled).await.unwrap().clone();
            match settled {
                Progress::Ready => assert!(usable, "{mode:o}"),
                Progress::Failed(why) => assert!(!usable && why.contains("chmod 700"), "{why}"),
                Progress::Building(doing) => panic!("{doing}"),
            }
        }
    }
}

#[test]
fn all_causes_are_told() {
    let source = std::io::Error::other("the disk is full");
    let path = PathBuf::from("/x");
    let error = atoll_interpreter_image::Error::File { action: "write", path, source };
    assert_eq!(causes(&error), "cannot write /x: the disk is full");
}

#[test]
fn tries_become_rare_and_never_stop() {
    let minutes: Vec<_> = (0..6).map(|tries| pause_after(tries).as_secs() / 60).collect();
    assert_eq!(minutes, [1, 5, 15, 60, 60, 60]);
}
