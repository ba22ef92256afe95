use super::*;

#[tokio::test]
async fn a_step_that_hangs_is_ended() {
    let mut command = Command::new("sleep");
    command.arg("1000");
    let slow = run_within(Duration::ZERO, "sleeping", &mut command).await.unwrap_err();
    assert!(matches!(slow, Error::Slow { step: "sleeping", .. }), "{slow}");
}

#[tokio::test]
async fn a_tree_that_is_there_is_not_built_again() {
    let folder = tempfile::tempdir().unwrap();
    let private = folder.path().join("private");
    folder::prepare_folder(&private).unwrap();
    let tree = private.join("tree");
    fs::create_dir(&tree).unwrap();
    build(&tree, |doing| panic!("{doing}")).await.unwrap();
    assert_eq!(fs::read_dir(&tree).unwrap().count(), 0);
}
