use super::ensure;
use std::{fs, os::unix::fs::MetadataExt, path::Path};

fn image(passwd: &str, group: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("etc/sudoers.d")).unwrap();
    fs::create_dir_all(root.path().join("bin")).unwrap();
    fs::write(root.path().join("etc/passwd"), passwd).unwrap();
    fs::write(root.path().join("etc/group"), group).unwrap();
    root
}

fn text(root: &Path, file: &str) -> String {
    fs::read_to_string(root.join(file)).unwrap()
}

const ROOT: &str = "root:x:0:0::/root:/bin/sh";

#[test]
fn a_user_is_made_with_group_home_and_rights() {
    let image = image(ROOT, "root:x:0:\n");
    let root = image.path();
    fs::write(root.join("etc/shadow"), "root:*:1::::::\n").unwrap();
    for _ in 0..2 {
        ensure(root, "user").unwrap();
    }
    let line = "user:x:1000:1000::/home/user:/bin/sh\n";
    assert_eq!(text(root, "etc/passwd"), format!("{ROOT}\n{line}"));
    assert_eq!(text(root, "etc/group"), "root:x:0:\nuser:x:1000:\n");
    assert!(text(root, "etc/shadow").contains("\nuser:*:"));
    assert_eq!(text(root, "etc/sudoers.d/90-user"), "user ALL=(ALL:ALL) NOPASSWD: ALL\n");
    assert_eq!(fs::metadata(root.join("etc/sudoers.d/90-user")).unwrap().mode() & 0o777, 0o440);
    let home = fs::metadata(root.join("home/user")).unwrap();
    assert_eq!((home.is_dir(), home.uid(), home.gid()), (true, 1000, 1000));
}

#[test]
fn what_the_image_has_is_kept() {
    let passwd = format!("{ROOT}\nann:x:1000:1000::/home/ann:/bin/sh\n");
    let image = image(&passwd, "root:x:0:\nann:x:1000:\nbob:x:1002:\nother:x:1001:\n");
    let root = image.path();
    fs::write(root.join("bin/bash"), "").unwrap();
    for there in ["ann", "root", "1234", "ann:bob"] {
        ensure(root, there).unwrap();
    }
    assert_eq!(text(root, "etc/passwd"), passwd, "nobody was missing");
    fs::create_dir_all(root.join("home/bob")).unwrap();
    ensure(root, "bob").unwrap();
    assert!(text(root, "etc/passwd").ends_with("bob:x:1003:1002::/home/bob:/bin/bash\n"));
    assert_eq!(text(root, "etc/group").matches("bob").count(), 1, "its group was there");
    assert_eq!(fs::metadata(root.join("home/bob")).unwrap().uid(), 0, "its home was there");
}

#[test]
fn an_image_without_accounts_gets_some() {
    let image = tempfile::tempdir().unwrap();
    ensure(image.path(), "user").unwrap();
    assert_eq!(text(image.path(), "etc/passwd"), "user:x:1000:1000::/home/user:/bin/sh\n");
    assert!(
        !image.path().join("etc/sudoers.d").exists() && !image.path().join("etc/shadow").exists()
    );
}

#[test]
fn hostile_names_and_files_are_refused() {
    let image = image(ROOT, "");
    for name in ["", "a:b:c", "A b", "../x", "x\ny:x:0:0::/:/bin/sh", "-x", &"x".repeat(33)] {
        assert!(ensure(image.path(), name).is_err(), "{name:?}");
    }
    fs::write(image.path().join("etc/group"), "x".repeat((1 << 20) + 1)).unwrap();
    assert!(ensure(image.path(), "user").is_err());
    assert_eq!(text(image.path(), "etc/passwd"), ROOT, "nothing was written");
}
