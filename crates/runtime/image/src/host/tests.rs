use super::*;

#[test]
fn the_skeleton_holds_no_secret_of_the_host() {
    let plan = skeleton().unwrap();
    for path in
        ["etc/shadow", "etc/gshadow", "etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf"]
    {
        assert!(matches!(plan.items()[Path::new(path)], Item::Text { .. }), "{path} must be fresh");
    }
    for (path, item) in plan.items() {
        let shown = path.display().to_string();
        for word in
            ["etc/ssh", "private", "etc/apt", "docker", "netrc", "pip.conf", "npmrc", "_key"]
        {
            assert!(!shown.contains(word), "{shown}");
        }
        if let Item::Copy { from, .. } = item {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(from).unwrap().permissions().mode();
            assert!(mode & 0o004 != 0, "{shown} is not readable by everyone");
        }
    }
}

#[test]
fn every_item_has_its_parent_directory() {
    let plan = skeleton().unwrap();
    for path in plan.items().keys() {
        for parent in path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()) {
            assert!(matches!(plan.items()[parent], Item::Directory { .. }), "{}", path.display());
        }
    }
}

#[test]
fn unreadable_files_are_left_out_and_links_are_not_followed() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("conf");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("open"), "x").unwrap();
    fs::write(source.join("secret"), "x").unwrap();
    fs::set_permissions(source.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink("/etc/shadow", source.join("link")).unwrap();
    let mut plan = Plan::new(1);
    plan.copy(&source, Path::new("conf"), (0, 0)).unwrap();
    let names: Vec<_> = plan.items().keys().map(|path| path.display().to_string()).collect();
    assert_eq!(names, ["conf", "conf/link", "conf/open"]);
    assert_eq!(plan.items()[Path::new("conf/link")], Item::Link("/etc/shadow".into()));
}

#[test]
fn a_changed_host_file_changes_the_version() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ld.so.cache");
    let version = || {
        let mut plan = Plan::new(1);
        plan.copy(&file, Path::new("etc/ld.so.cache"), (0, 0)).unwrap();
        plan.version()
    };
    fs::write(&file, "one").unwrap();
    let before = version();
    assert_eq!(before, version());
    fs::write(&file, "three").unwrap();
    assert_ne!(before, version());
}

#[test]
fn a_host_that_is_not_merged_is_refused() {
    let host = tempfile::tempdir().unwrap();
    fs::create_dir(host.path().join("bin")).unwrap();
    let error = merged_links(host.path(), &mut Plan::new(1)).unwrap_err();
    assert!(error.to_string().contains("not usr-merged"), "{error}");
    assert_eq!(error.kind(), crate::ErrorKind::Invalid);
}

#[test]
fn missing_programs_are_named_with_the_remedy() {
    let programs = tempfile::tempdir().unwrap();
    for name in ["bash", "git", "curl", "sudo"] {
        fs::write(programs.path().join(name), "").unwrap();
    }
    let expected = "python3 is not installed on this host: apt-get install python3";
    assert_eq!(warnings(programs.path()), [expected]);
}
