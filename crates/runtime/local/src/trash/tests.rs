use std::os::unix::fs::symlink;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::fs::{mkdirat, openat};
use tempfile::TempDir;

use super::*;
use crate::sys::{mount, process};

struct Place {
    dir: TempDir,
    layout: Layout,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        std::fs::create_dir(layout.trash()).unwrap();
        Self { dir, layout }
    }

    /// Takes turns of `entries` until the tree is done; how many there were, and what went wrong.
    fn remove(&self, mut removal: Removal, entries: u64) -> (usize, Option<Errno>) {
        let root = open_folder(&self.layout.trash()).unwrap();
        let mut turns = 1;
        while !removal.turn(root.as_fd(), entries) {
            turns += 1;
        }
        (turns, removal.failure())
    }

    fn left(&self) -> usize {
        std::fs::read_dir(self.layout.trash()).unwrap().count()
    }
}

/// Folders in folders, by descriptor: no path could name the innermost.
fn dig(top: &Path, depth: usize) {
    std::fs::create_dir(top).unwrap();
    let mut here = open_folder(top).unwrap();
    for _ in 0..depth {
        mkdirat(&here, c"d", Mode::RWXU).unwrap();
        here = openat(&here, c"d", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
    // A folder that isn't empty at its very end.
    mkdirat(&here, c"last", Mode::RWXU).unwrap();
}

/// The most descriptors seen on files below `dir` until `stop` is set.
fn most_open(dir: &Path, stop: &AtomicBool) -> usize {
    let mut most = 0;
    while !stop.load(Ordering::Acquire) {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let here = open
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .filter(|target| target.starts_with(dir));
        most = most.max(here.count());
    }
    most
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_hostile_tree_goes_and_what_its_links_name_stays() {
    let place = Place::new();
    let outside = place.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("kept"), "kept").unwrap();
    let tree = place.layout.trash().join("tree");
    std::fs::create_dir(&tree).unwrap();
    dig(&tree.join("deep"), 5000);
    dig(&tree.join("deeper"), 3000);
    let wide = tree.join("wide");
    std::fs::create_dir(&wide).unwrap();
    for number in 0..10_000 {
        std::fs::write(wide.join(number.to_string()), "").unwrap();
    }
    symlink(&outside, tree.join("folder-link")).unwrap();
    symlink(outside.join("kept"), wide.join("file-link")).unwrap();
    symlink("..", wide.join("loop")).unwrap();

    let stop = AtomicBool::new(false);
    let (removed, most) = std::thread::scope(|scope| {
        let most = scope.spawn(|| most_open(&place.layout.trash(), &stop));
        let removed = place.remove(Removal::of(c"tree".into()), u64::MAX);
        stop.store(true, Ordering::Release);
        (removed, most.join().unwrap())
    });
    assert_eq!(removed, (1, None));
    assert_eq!(place.left(), 0);
    assert!((2..70).contains(&most), "{most} folders were seen open at once");
    assert_eq!(std::fs::read_to_string(outside.join("kept")).unwrap(), "kept");
}

#[test]
fn a_tree_is_removed_in_turns() {
    let place = Place::new();
    let tree = place.layout.trash().join("tree");
    dig(&tree, 500);
    for number in 0..100 {
        std::fs::write(tree.join(number.to_string()), "").unwrap();
    }
    let (turns, failure) = place.remove(Removal::of(c"tree".into()), 50);
    assert!(turns > 10, "only {turns} turns");
    assert_eq!((failure, place.left()), (None, 0));
}

#[test]
fn leftovers_of_an_earlier_server_go_with_the_names_they_occupy() {
    let place = Place::new();
    let trash = place.layout.trash();
    for number in 0..200 {
        let leftover = trash.join(format!("deep.{number}"));
        std::fs::create_dir(&leftover).unwrap();
        std::fs::write(leftover.join("file"), "").unwrap();
    }
    dig(&trash.join("sandbox.0"), 300);
    std::fs::write(trash.join("a-file"), "").unwrap();
    assert_eq!(place.remove(Removal::of_everything(), u64::MAX), (1, None));
    assert_eq!(place.left(), 0);
}

#[test]
fn what_is_mounted_in_a_tree_is_not_entered() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let outside = place.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("kept"), "kept").unwrap();
    let tree = place.layout.trash().join("tree");
    std::fs::create_dir_all(tree.join("mount")).unwrap();
    std::fs::write(tree.join("file"), "").unwrap();
    std::thread::scope(|scope| {
        // The mount is this thread's alone and ends with it.
        scope.spawn(|| {
            process::unshare(libc::CLONE_NEWNS).unwrap();
            mount::make_all_private().unwrap();
            let mounted = mount::clone_tree(&outside, false).unwrap();
            mount::attach(mounted.as_fd(), &tree.join("mount")).unwrap();
            let (_, failure) = place.remove(Removal::of(c"tree".into()), u64::MAX);
            assert_eq!(failure, Some(Errno::BUSY));
        });
    });
    assert!(outside.join("kept").exists());
    assert!(tree.join("mount").exists() && !tree.join("file").exists());
    assert_eq!(place.remove(Removal::of(c"tree".into()), u64::MAX), (1, None));
}

#[test]
fn thrown_folders_are_gone_at_once_and_deleted_later() {
    let place = Place::new();
    let folder = place.dir.path().join("same-name");
    let trash = Trash::of(&place.layout);
    for _ in 0..20 {
        dig(&folder, 100);
        trash.throw(&folder).unwrap();
        assert!(!folder.exists());
    }
    trash.throw(&folder).expect("nothing there is fine");
    dig(&place.layout.trash().join("left-over"), 10);
    trash.empty();
    wait_until("the trash is empty", || place.left() == 0);
}

#[test]
fn a_folder_that_can_not_be_thrown_stays_whole() {
    let place = Place::new();
    let folder = place.dir.path().join("folder");
    dig(&folder, 2);
    std::fs::remove_dir(place.layout.trash()).unwrap();
    let error = Trash::of(&place.layout).throw(&folder).unwrap_err();
    assert!(error.to_string().contains("moving files into the trash"), "{error}");
    assert!(folder.join("d/d/last").exists());
}

#[test]
fn a_link_is_thrown_itself() {
    let place = Place::new();
    let (outside, link) = (place.dir.path().join("outside"), place.dir.path().join("link"));
    dig(&outside, 1);
    symlink(&outside, &link).unwrap();
    Trash::of(&place.layout).throw(&link).unwrap();
    wait_until("the trash is empty", || place.left() == 0);
    assert!(link.symlink_metadata().is_err() && outside.join("d/last").exists());
}
