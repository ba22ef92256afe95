use super::*;
use crate::{Guest, Options, Role, environment::FILE_VARIABLE};
use std::{os::unix::fs::PermissionsExt, time::Duration};

struct World {
    guest: Arc<Guest>,
    root: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let file = (FILE_VARIABLE.to_owned(), "/dev/null".to_owned());
        let options = Options { env: [file].into(), ..Options::default() };
        let guest = Guest::new(Role::Guest, options).unwrap();
        Self { guest, root: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    async fn watch(&self, name: &str, recursive: bool) -> Watcher {
        let wish = Wish { recursive, ..Wish::default() };
        self.guest.watches().watch(self.path(name), wish).await.unwrap()
    }
}

async fn next(watcher: &Watcher) -> (String, Change) {
    let event = tokio::time::timeout(Duration::from_secs(10), watcher.next()).await;
    let event = event.expect("an event comes").expect("nothing is lost");
    (event.name.to_string_lossy().into_owned(), event.change)
}

/// All events up to the making of the file `end`, which this makes.
async fn until_end(world: &World, watcher: &Watcher, end: &str) -> Vec<(String, Change)> {
    fs::create_dir(world.path(end)).unwrap();
    let mut events = Vec::new();
    loop {
        let event = next(watcher).await;
        if event.0.ends_with("end") {
            return events;
        }
        events.push(event);
    }
}

fn event(name: &str, change: Change) -> (String, Change) {
    (name.to_owned(), change)
}

#[tokio::test]
async fn every_change_has_its_name() {
    let world = World::new();
    let watcher = world.watch("", false).await;
    fs::write(world.path("a"), "x").unwrap();
    fs::set_permissions(world.path("a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(world.path("a"), world.path("b")).unwrap();
    fs::remove_file(world.path("b")).unwrap();
    let want = [
        event("a", Change::Create),
        event("a", Change::Write),
        event("a", Change::Chmod),
        event("a", Change::Rename),
        event("b", Change::Create),
        event("b", Change::Remove),
    ];
    assert_eq!(until_end(&world, &watcher, "end").await, want);
}

#[tokio::test]
async fn only_a_recursive_watch_goes_down() {
    let world = World::new();
    fs::create_dir_all(world.path("old/deep")).unwrap();
    let flat = world.watch("", false).await;
    let deep = world.watch("", true).await;
    fs::write(world.path("old/deep/f"), "x").unwrap();
    fs::create_dir_all(world.path("new/sub")).unwrap();
    // By now the new directory is watched, or its content is told from looking into it.
    assert_eq!(next(&deep).await, event("old/deep/f", Change::Create));
    assert_eq!(next(&deep).await, event("old/deep/f", Change::Write));
    assert_eq!(next(&deep).await, event("new", Change::Create));
    assert_eq!(next(&deep).await, event("new/sub", Change::Create));
    fs::write(world.path("new/sub/f"), "x").unwrap();
    assert_eq!(next(&deep).await, event("new/sub/f", Change::Create));
    fs::remove_dir_all(world.path("new")).unwrap();
    let rest = until_end(&world, &deep, "end").await;
    let removed: Vec<&str> = rest
        .iter()
        .filter(|(_, change)| *change == Change::Remove)
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(removed, ["new/sub/f", "new/sub", "new"]);
    let flat: Vec<(String, Change)> = until_end(&world, &flat, "flat-end").await;
    assert_eq!(flat, [event("new", Change::Create), event("new", Change::Remove)]);
}

#[tokio::test]
async fn a_moved_directory_is_followed_under_its_new_name() {
    let world = World::new();
    fs::create_dir_all(world.path("in/a/b")).unwrap();
    fs::create_dir(world.path("out")).unwrap();
    let watcher = world.watch("in", true).await;
    fs::rename(world.path("in/a"), world.path("in/z")).unwrap();
    assert_eq!(next(&watcher).await, event("a", Change::Rename));
    assert_eq!(next(&watcher).await, event("z", Change::Create));
    fs::create_dir(world.path("in/z/b/c")).unwrap();
    assert_eq!(next(&watcher).await, event("z/b/c", Change::Create));
    fs::rename(world.path("in/z"), world.path("out/z")).unwrap();
    assert_eq!(next(&watcher).await, event("z", Change::Rename));
    fs::write(world.path("out/z/b/unseen"), "").unwrap();
    assert_eq!(until_end(&world, &watcher, "in/end").await, []);
}

#[tokio::test]
async fn what_can_not_be_watched_is_refused_and_leaves_nothing() {
    let world = World::new();
    fs::write(world.path("file"), "").unwrap();
    let watch = async |name| world.guest.watches().watch(world.path(name), Wish::default()).await;
    assert!(matches!(watch("none").await, Err(Error::Missing { .. })));
    assert!(matches!(watch("file").await, Err(Error::Unsuitable { .. })));
    let id = world.guest.watches().keep(watch("").await.unwrap());
    assert_eq!((id.len(), id.starts_with('w')), (21, true));
    assert!(world.guest.watches().find(&id).unwrap().try_next().is_none());
    world.guest.watches().remove(&id).unwrap();
    assert!(matches!(world.guest.watches().remove(&id), Err(Error::Unknown { .. })));
    // The inotify instance goes with the last watcher.
    while world.guest.watches().live.lock().await.is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_link_as_root_is_followed_and_entries_are_looked_at() {
    let world = World::new();
    fs::create_dir(world.path("real")).unwrap();
    std::os::unix::fs::symlink("real", world.path("link")).unwrap();
    let wish = Wish { entry_prefix: Some("user.test."), recursive: true, ..Wish::default() };
    let watcher = world.guest.watches().watch(world.path("link"), wish).await.unwrap();
    fs::create_dir(world.path("real/d")).unwrap();
    let event = watcher.next().await.unwrap();
    assert_eq!(event.entry.map(|entry| entry.path), Some(world.path("link/d")));
    fs::remove_dir(world.path("real/d")).unwrap();
    let event = watcher.next().await.unwrap();
    assert_eq!((event.change, event.entry), (Change::Remove, None));
}
