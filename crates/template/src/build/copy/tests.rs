//! The script, run for real on folders of our own. Archives hold what clients would send.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::*;

struct Yard {
    dir: tempfile::TempDir,
}

impl Yard {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["context", "root"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Packs the context and places it; answers whether that worked.
    fn place(&self, pattern: &str, target: &str, mode: &str) -> bool {
        let archive = self.path("files.tar");
        let packed = Command::new("tar")
            .args(["-c", "-z", "-f"])
            .arg(&archive)
            .arg("-C")
            .arg(self.path("context"))
            .arg(".")
            .status()
            .unwrap();
        assert!(packed.success());
        let target = match target.strip_prefix('/') {
            Some(rest) => format!("{}/{rest}", self.path("root").display()),
            None => target.to_owned(),
        };
        let (room, place) = (self.path("room"), self.path("root/home"));
        let done = Command::new("sh")
            .args(["-c", &script(), "copy"])
            .args([&archive, &room])
            .args([source(pattern), target, "0:0".to_owned(), mode.to_owned()])
            .arg(place)
            .output()
            .unwrap();
        assert!(!archive.exists() && !room.exists(), "nothing is left behind: {done:?}");
        done.status.success()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path("root").join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_file_goes_to_the_exact_path_or_into_a_folder() {
    let yard = Yard::new();
    yard.write("context/a b.txt", "one");
    assert!(yard.place("a b.txt", "/x/y.txt", "0640"));
    assert_eq!(yard.read("x/y.txt"), "one");
    assert_eq!(mode(&yard.path("root/x/y.txt")), 0o640);
    assert!(yard.place("a b.txt", "/dir/", ""));
    assert_eq!(yard.read("dir/a b.txt"), "one");
    assert!(yard.place("./a b.txt", "rel.txt", ""));
    assert_eq!(yard.read("home/rel.txt"), "one");
}

#[test]
fn a_folder_is_merged_into_what_is_there() {
    let yard = Yard::new();
    yard.write("context/src/new.txt", "new");
    yard.write("context/src/sub/both.txt", "new");
    yard.write("root/app/old.txt", "old");
    yard.write("root/app/sub/both.txt", "old");
    fs::set_permissions(yard.path("root/app"), fs::Permissions::from_mode(0o711)).unwrap();
    assert!(yard.place("src", "/app", ""));
    let found = ["app/new.txt", "app/old.txt", "app/sub/both.txt"].map(|name| yard.read(name));
    assert_eq!(found, ["new", "old", "new"]);
    assert_eq!(mode(&yard.path("root/app")), 0o711, "an existing folder keeps its mode");
}

#[test]
fn links_at_the_target_are_not_written_through_but_folders_are_followed() {
    let yard = Yard::new();
    yard.write("context/src/lib/a.txt", "new");
    yard.write("context/src/config", "new");
    yard.write("root/usr/lib/old.txt", "old");
    yard.write("root/precious", "old");
    symlink("usr/lib", yard.path("root/lib")).unwrap();
    symlink("precious", yard.path("root/config")).unwrap();
    assert!(yard.place("src", "/", ""));
    assert_eq!(yard.read("usr/lib/a.txt"), "new");
    assert_eq!(yard.read("precious"), "old");
    assert_eq!(yard.read("config"), "new");
}

#[test]
fn patterns_and_links_are_placed() {
    let yard = Yard::new();
    yard.write("context/src/a.py", "a");
    yard.write("context/src/deep/b.py", "b");
    symlink("a.py", yard.path("context/src/link")).unwrap();
    assert!(yard.place("src/**/*.py", "/all/", ""));
    assert_eq!([yard.read("all/a.py"), yard.read("all/deep/b.py")], ["a", "b"]);
    assert!(yard.place("src/link", "/kept", ""));
    assert_eq!(fs::read_link(yard.path("root/kept")).unwrap(), Path::new("a.py"));
    assert!(yard.place(".", "/whole", ""));
    assert_eq!(yard.read("whole/src/a.py"), "a");
}

#[test]
fn what_was_not_uploaded_fails() {
    let yard = Yard::new();
    yard.write("context/a", "a");
    assert!(!yard.place("missing", "/x", ""));
    assert!(!yard.path("root/x").exists());
}

#[test]
fn patterns_are_cut_where_they_begin() {
    for (pattern, wanted) in [
        ("src/*.py", "src"),
        ("*", "."),
        (".", "."),
        ("./a/b", "a/b"),
        ("a/**/c", "a"),
        ("a/", "a"),
    ] {
        assert_eq!(source(pattern), wanted);
    }
    assert_eq!([owner("user"), owner("a:b")], ["user:", "a:b"]);
}
