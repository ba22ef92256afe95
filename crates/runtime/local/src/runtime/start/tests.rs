use super::*;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_data_folder_that_was_open_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    set_mode(&data, 0o755);
    make_folders(&data).unwrap();
    assert_eq!(mode(&data), 0o700);
    assert!(data.join("trash").is_dir());
}

#[test]
fn a_folder_that_all_users_share_is_refused_and_untouched() {
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o1777);
    let error = make_folders(dir.path()).unwrap_err();
    assert!(error.to_string().contains("name a folder of its own"), "{error}");
    assert_eq!(mode(dir.path()), 0o1777);
}

#[test]
fn a_folder_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(12345), None).unwrap();
    let error = make_folders(dir.path()).unwrap_err();
    assert!(error.to_string().contains("belongs to another user"), "{error}");
}
