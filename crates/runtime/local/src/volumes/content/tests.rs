use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use atoll_control::{EntryKind, Ownership};
use atoll_core::{Error, ErrorKind};

use super::place::Place;
use super::{Draft, change, entries, entry, make_directory, open_file, to_remove};
use crate::config::Layout;
use crate::trash::Trash;

/// A volume, and a secret outside of it that no path may reach.
struct World {
    _folder: tempfile::TempDir,
    layout: Layout,
    volume: PathBuf,
    secret: PathBuf,
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path());
    let volume = layout.volume("t", "v");
    for dir in [&volume, &layout.trash(), &layout.volume_drafts()] {
        fs::create_dir_all(dir).unwrap();
    }
    let secret = folder.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    World { _folder: folder, layout, volume, secret }
}

impl World {
    fn write(&self, path: &str, text: &str, force: bool) -> Result<(), Error> {
        self.write_as(path, text, force, Ownership::default())
    }

    fn write_as(&self, path: &str, text: &str, force: bool, as_: Ownership) -> Result<(), Error> {
        let (draft, mut file) = Draft::begin(&self.layout, &self.volume, path, as_, force)?;
        file.write_all(text.as_bytes()).unwrap();
        draft.finish(&file).map(drop)
    }

    fn read(&self, path: &str) -> Result<String, Error> {
        let (file, size) = open_file(&self.volume, path)?;
        let text = std::io::read_to_string(file).unwrap();
        assert_eq!(text.len() as u64, size);
        Ok(text)
    }

    fn remove(&self, path: &str) -> Result<(), Error> {
        let (parent, name, place) = to_remove(&self.volume, path)?;
        match Trash::of(&self.layout).throw_from(&parent, &name).unwrap() {
            true => Ok(()),
            false => Err(place.missing()),
        }
    }

    fn names(&self, path: &str, depth: u32) -> Vec<String> {
        entries(&self.volume, path, depth).unwrap().into_iter().map(|entry| entry.path).collect()
    }

    /// Nothing that was tried has touched what is outside, or left a draft.
    fn check_outside(&self) {
        assert_eq!(fs::read_to_string(&self.secret).unwrap(), "secret");
        let owner = fs::metadata(&self.secret).unwrap();
        assert_eq!((owner.uid(), owner.mode() & 0o777), (0, 0o644));
        assert_eq!(fs::read_dir(self.layout.volume_drafts()).unwrap().count(), 0);
    }
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn paths_are_plain_or_refused() {
    for (path, shown) in [("/", "/"), ("a", "/a"), ("//a/./b/", "/a/b"), ("/ü/...", "/ü/...")] {
        assert_eq!(Place::parse(path).unwrap().to_string(), shown);
    }
    let long = format!("/{}", "x".repeat(256));
    for bad in ["", "..", "/a/../b", "/a/..", "a\0b", &long, &"/x".repeat(2048)] {
        assert_eq!(kind(Place::parse(bad)), Some(ErrorKind::Invalid), "{bad:.20}");
    }
}

#[test]
fn files_are_written_whole_and_read_back() {
    let world = world();
    world.write("/a.txt", "one", false).unwrap();
    assert_eq!(kind(world.write("/a.txt", "two", false)), Some(ErrorKind::Conflict));
    assert_eq!(world.read("/a.txt").unwrap(), "one");
    let as_ = Ownership { uid: Some(1000), gid: Some(1001), mode: Some(0o640) };
    world.write_as("/a.txt", "two", true, as_).unwrap();
    assert_eq!(world.read("/a.txt").unwrap(), "two");
    let seen = entry(&world.volume, "/a.txt").unwrap();
    assert_eq!((seen.uid, seen.gid, seen.mode, seen.size), (1000, 1001, 0o640, 3));
    assert_eq!((seen.name.as_str(), seen.kind), ("a.txt", EntryKind::File));
    assert_eq!(kind(world.write("/no/such/b", "x", false)), Some(ErrorKind::NotFound));
    world.write("/no/such/b", "x", true).unwrap();
    assert_eq!(world.names("/", 3), ["/a.txt", "/no", "/no/such", "/no/such/b"]);
    assert_eq!(kind(world.write("/no", "x", true)), Some(ErrorKind::Conflict), "it is a folder");
    assert_eq!(kind(world.read("/no")), Some(ErrorKind::Invalid));
    assert_eq!(kind(world.read("/a.txt/b")), Some(ErrorKind::NotFound));
    // A draft that nobody finishes leaves the old file.
    let begun = Draft::begin(&world.layout, &world.volume, "/a.txt", Ownership::default(), true);
    drop(begun.unwrap());
    assert_eq!(world.read("/a.txt").unwrap(), "two");
    world.check_outside();
}

#[test]
fn folders_are_made_listed_and_removed() {
    let world = world();
    let none = Ownership::default();
    let made = make_directory(&world.volume, "/d", none, false).unwrap();
    assert_eq!((made.kind, made.mode, made.uid), (EntryKind::Directory, 0o755, 0));
    assert_eq!(kind(make_directory(&world.volume, "/d", none, false)), Some(ErrorKind::Conflict));
    assert_eq!(kind(make_directory(&world.volume, "/e/f", none, false)), Some(ErrorKind::NotFound));
    let own = Ownership { uid: Some(5), gid: Some(6), mode: Some(0o700) };
    for _ in 0..2 {
        make_directory(&world.volume, "/e/f", own, true).unwrap();
    }
    let seen = entry(&world.volume, "/e/f").unwrap();
    assert_eq!((seen.uid, seen.gid, seen.mode), (5, 6, 0o700));
    assert_eq!(world.names("/", 1), ["/d", "/e"]);
    assert_eq!(world.names("/e", 1), ["/e/f"]);
    assert_eq!(kind(entries(&world.volume, "/nothing", 1)), Some(ErrorKind::NotFound));
    assert_eq!(kind(entries(&world.volume, "/", 0)), Some(ErrorKind::Invalid));
    world.write("/e/f/g", "x", false).unwrap();
    world.remove("/e").unwrap();
    assert_eq!(kind(world.remove("/e")), Some(ErrorKind::NotFound));
    assert_eq!(kind(world.remove("/")), Some(ErrorKind::Invalid));
    assert_eq!(world.names("/", 3), ["/d"]);
    for root in [entry(&world.volume, "/"), make_directory(&world.volume, "/", none, true)] {
        assert_eq!(root.unwrap().path, "/");
    }
}

#[test]
fn owners_and_modes_are_bounded() {
    let world = world();
    world.write("/a", "", false).unwrap();
    for bad in [
        Ownership { uid: Some(65_536), ..Ownership::default() },
        Ownership { gid: Some(u32::MAX), ..Ownership::default() },
        Ownership { mode: Some(0o10_000), ..Ownership::default() },
    ] {
        assert_eq!(kind(change(&world.volume, "/a", bad)), Some(ErrorKind::Invalid));
        assert_eq!(kind(world.write_as("/b", "", false, bad)), Some(ErrorKind::Invalid));
    }
    let own = Ownership { uid: Some(65_535), gid: None, mode: Some(0o4711) };
    let seen = change(&world.volume, "/a", own).unwrap();
    assert_eq!((seen.uid, seen.gid, seen.mode), (65_535, 0, 0o4711));
    assert_eq!(kind(change(&world.volume, "/c", own)), Some(ErrorKind::NotFound));
}

#[test]
fn no_link_leads_out() {
    let world = world();
    let inside = |name: &str| world.volume.join(name);
    symlink(&world.secret, inside("absolute")).unwrap();
    symlink("../../../secret", inside("relative")).unwrap();
    symlink(world.secret.parent().unwrap(), inside("folder")).unwrap();
    symlink("/proc/self/root", inside("magic")).unwrap();
    symlink("loop", inside("loop")).unwrap();
    let own = Ownership { uid: Some(1000), gid: Some(1000), mode: Some(0o777) };
    for link in ["/absolute", "/relative", "/folder/secret", "/magic/etc/passwd", "/loop"] {
        assert!(world.read(link).is_err(), "{link}");
    }
    for below in ["/folder", "/magic", "/loop"] {
        assert!(entries(&world.volume, below, 1).is_err(), "{below}");
        assert!(world.write(&format!("{below}/new"), "x", false).is_err(), "{below}");
        assert!(world.write(&format!("{below}/new"), "x", true).is_err(), "{below}");
        assert!(world.remove(&format!("{below}/secret")).is_err(), "{below}");
        let made = make_directory(&world.volume, &format!("{below}/new"), own, true);
        assert!(made.is_err(), "{below}");
    }
    // A link itself can be seen, given away, written over and removed.
    let seen = entry(&world.volume, "/relative").unwrap();
    assert_eq!((seen.kind, seen.target.as_deref()), (EntryKind::Symlink, Some("../../../secret")));
    assert_eq!(change(&world.volume, "/absolute", own).unwrap().uid, 1000);
    world.check_outside();
    world.write("/absolute", "mine", true).unwrap();
    assert_eq!(world.read("/absolute").unwrap(), "mine");
    assert!(!inside("absolute").is_symlink());
    world.remove("/folder").unwrap();
    let listed = entries(&world.volume, "/", 5).unwrap();
    assert_eq!(listed.len(), 4, "no link was entered: {listed:?}");
    world.check_outside();
}

#[test]
fn links_within_the_volume_work_as_in_a_sandbox_root() {
    let world = world();
    world.write("/d/file", "here", true).unwrap();
    symlink("/d", world.volume.join("absolute")).unwrap();
    symlink("d/file", world.volume.join("relative")).unwrap();
    assert_eq!(world.read("/absolute/file").unwrap(), "here");
    assert_eq!(world.read("/relative").unwrap(), "here");
    assert_eq!(world.names("/absolute", 1), ["/absolute/file"]);
}

#[test]
fn pipes_and_sockets_are_not_opened() {
    let world = world();
    let pipe = world.volume.join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.volume.join("socket")).unwrap();
    for path in ["/pipe", "/socket"] {
        assert_eq!(kind(world.read(path)), Some(ErrorKind::Invalid), "{path}");
        assert_eq!(entry(&world.volume, path).unwrap().kind, EntryKind::Other);
    }
}

#[test]
fn huge_listings_are_refused_and_deep_trees_removed() {
    let world = world();
    let many = world.volume.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..=10_000 {
        fs::write(many.join(number.to_string()), "").unwrap();
    }
    let refused = entries(&world.volume, "/many", 1).unwrap_err();
    assert_eq!(refused.reason(), Some("TOO_MANY_ENTRIES"));
    assert_eq!(kind(entries(&world.volume, "/", 2)), Some(ErrorKind::Invalid));
    assert_eq!(world.names("/", 1), ["/many"]);
    let deep = format!("/deep{}", "/d".repeat(500));
    make_directory(&world.volume, &deep, Ownership::default(), true).unwrap();
    assert_eq!(entries(&world.volume, "/deep", 64).unwrap().len(), 64);
    assert_eq!(kind(entries(&world.volume, "/deep", 65)), Some(ErrorKind::Invalid));
    world.remove("/deep").unwrap();
    world.remove("/many").unwrap();
    assert!(world.names("/", 1).is_empty());
}

/// Somebody inside swaps a folder for a link to the outside all the time.
#[test]
fn a_path_that_changes_meanwhile_never_leads_out() {
    let world = world();
    let (folder, link) = (world.volume.join("d"), world.volume.join("l"));
    fs::create_dir(&folder).unwrap();
    symlink(world.secret.parent().unwrap(), &link).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    let swap = |a: &Path, b: &Path| {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, a, rustix::fs::CWD, b, flags).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                swap(&folder, &link);
            }
        });
        let own = Ownership { uid: Some(1000), gid: Some(1000), mode: Some(0o777) };
        for _ in 0..2000 {
            // Each may work or not, as the moment has it; none may work outside.
            let _either = world.write_as("/d/secret", "stolen", true, own);
            let _either = change(&world.volume, "/d/secret", own);
            let _either = make_directory(&world.volume, "/d/trash/x", own, true);
            if let Ok(text) = world.read("/d/secret") {
                assert_eq!(text, "stolen", "read from outside");
            }
            let _either = world.remove("/d/secret");
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    world.check_outside();
    assert!(!world.layout.trash().join("x").exists());
    assert_eq!(fs::metadata(&world.secret).unwrap().permissions().mode() & 0o777, 0o644);
}
