use super::{Change, Event, Queue, Wish};
use crate::{Error, Result, files};
use rustix::{
    fs::inotify::{self, ReadFlags, WatchFlags},
    io::Errno,
};
use std::{
    collections::{HashMap, HashSet},
    ffi::{OsStr, OsString},
    fs::{self, File},
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::io::unix::AsyncFd;

/// Watchers at once, kept ones and streams together.
const WATCHERS_MAX: usize = 256;
/// Directories that one watcher may cover.
const DIRECTORIES_MAX: usize = 8192;
/// Entries of a new directory that are told as created.
const ANNOUNCED_MAX: usize = 10_000;
/// Events that are handled before others get their turn.
const BATCH_EVENTS: usize = 4096;
const READ_BYTES: usize = 16 * 1024;

const MASK: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// The inotify instance, and who watches what with it. Everything here blocks.
#[derive(Debug)]
pub(super) struct Hub {
    source: Arc<AsyncFd<File>>,
    /// By the kernel's number: several watchers may share a directory.
    directories: HashMap<i32, Vec<Place>>,
    watchers: HashMap<u64, Watched>,
    /// Directories that have been moved to a place not known yet.
    departed: Vec<Departed>,
    counted: u64,
}

/// A directory moved away; where it arrives, if that is watched, is told under the same cookie.
#[derive(Debug)]
struct Departed {
    cookie: u32,
    watcher: u64,
    path: PathBuf,
}

/// A directory as one watcher sees it.
#[derive(Debug)]
struct Place {
    watcher: u64,
    path: PathBuf,
    /// Entries that were found when the directory appeared and told as created. The kernel may
    /// tell some of them once more.
    announced: HashSet<OsString>,
}

#[derive(Debug)]
struct Watched {
    root: PathBuf,
    wish: Wish,
    queue: Arc<Queue>,
    directories: usize,
}

/// One event of the kernel.
#[derive(Debug)]
struct Notice {
    number: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Option<OsString>,
}

impl Hub {
    pub(super) fn new(source: Arc<AsyncFd<File>>) -> Self {
        let (directories, watchers) = (HashMap::new(), HashMap::new());
        Self { source, directories, watchers, departed: Vec::new(), counted: 0 }
    }

    /// Begins to watch a directory.
    pub(super) fn add(&mut self, root: PathBuf, wish: Wish, queue: Arc<Queue>) -> Result<()> {
        self.sweep();
        if self.watchers.len() >= WATCHERS_MAX {
            return Err(Error::Full { what: "watchers", limit: WATCHERS_MAX });
        }
        self.counted += 1;
        let number = self.counted;
        let watched = Watched { root: root.clone(), wish, queue, directories: 0 };
        self.watchers.insert(number, watched);
        let added = self.cover(number, root, false);
        if added.is_err() {
            self.remove(number);
        }
        added
    }

    /// Forgets watchers that have gone; says whether none is left.
    pub(super) fn sweep(&mut self) -> bool {
        let gone = self.watchers.iter().filter(|(_, watched)| watched.queue.is_closed());
        for number in gone.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.remove(number);
        }
        self.watchers.is_empty()
    }

    fn remove(&mut self, watcher: u64) {
        self.uncover(watcher, Path::new("/"));
        self.watchers.remove(&watcher);
    }

    /// Watches a directory for a watcher, with those below if it is recursive. Entries of a
    /// directory that has just appeared are told: nobody watched when they were made.
    fn cover(&mut self, watcher: u64, top: PathBuf, is_new: bool) -> Result<()> {
        let Some(watched) = self.watchers.get(&watcher) else { return Ok(()) };
        let (recursive, root) = (watched.wish.recursive, watched.root.clone());
        let mut waiting = vec![top];
        while let Some(path) = waiting.pop() {
            // The root may be a link; on the way down they are not followed.
            let follow = if path == root { WatchFlags::empty() } else { WatchFlags::DONT_FOLLOW };
            let number = match inotify::add_watch(&*self.source, &path, MASK | follow) {
                Ok(number) => number,
                Err(Errno::NOSPC) => return Err(full()),
                Err(error) if path == root => {
                    return Err(Error::file("watch", path, error.into()));
                }
                // It has vanished, or may not be read.
                Err(_) => continue,
            };
            self.place(number, watcher, &path)?;
            if recursive {
                waiting.extend(self.look_into(number, watcher, &path, is_new));
            }
        }
        Ok(())
    }

    fn place(&mut self, number: i32, watcher: u64, path: &Path) -> Result<()> {
        let places = self.directories.entry(number).or_default();
        let is_known = |place: &Place| place.watcher == watcher && place.path == path;
        let Some(watched) = self.watchers.get_mut(&watcher) else { return Ok(()) };
        if places.iter().any(is_known) {
            return Ok(());
        }
        if watched.directories >= DIRECTORIES_MAX {
            return Err(full());
        }
        watched.directories += 1;
        places.push(Place { watcher, path: path.to_owned(), announced: HashSet::new() });
        Ok(())
    }

    /// The directories inside a directory; tells all entries if it is new.
    fn look_into(&mut self, number: i32, watcher: u64, path: &Path, is_new: bool) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
        let (mut below, mut told) = (Vec::new(), Vec::new());
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                below.push(entry.path());
            }
            if is_new && told.len() < ANNOUNCED_MAX {
                told.push(entry.file_name());
            }
        }
        told.sort();
        for name in &told {
            self.tell(watcher, &path.join(name), Change::Create);
        }
        let places = self.directories.get_mut(&number).into_iter().flatten();
        for place in places.filter(|place| place.watcher == watcher && place.path == path) {
            place.announced = told.iter().cloned().collect();
        }
        below.sort_by(|a, b| b.cmp(a));
        below
    }

    /// Stops watching `top` and everything below it for a watcher.
    fn uncover(&mut self, watcher: u64, top: &Path) {
        let (mut left, mut removed) = (Vec::new(), 0);
        for (number, places) in &mut self.directories {
            let before = places.len();
            places.retain(|place| place.watcher != watcher || !place.path.starts_with(top));
            removed += before - places.len();
            if places.is_empty() {
                left.push(*number);
            }
        }
        for number in left {
            self.directories.remove(&number);
            // It may have been removed with its directory.
            inotify::remove_watch(&*self.source, number).ok();
        }
        if let Some(watched) = self.watchers.get_mut(&watcher) {
            watched.directories = watched.directories.saturating_sub(removed);
        }
    }

    /// Handles what the kernel has; says whether that was all.
    pub(super) fn drain(&mut self) -> bool {
        let source = Arc::clone(&self.source);
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut reader = inotify::Reader::new(&*source, &mut buffer);
        let mut handled = 0;
        let is_drained = loop {
            let notice = match reader.next() {
                Ok(event) => Notice {
                    number: event.wd(),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event
                        .file_name()
                        .map(|name| OsStr::from_bytes(name.to_bytes()).to_owned()),
                },
                Err(Errno::INTR) => continue,
                Err(_) => break true,
            };
            self.handle(&notice);
            handled += 1;
            // What has been read must be handled in any case.
            if handled >= BATCH_EVENTS && reader.is_buffer_empty() {
                break false;
            }
        };
        // Departures and arrivals are told together, so these have left for good.
        for Departed { watcher, path, .. } in std::mem::take(&mut self.departed) {
            self.uncover(watcher, &path);
        }
        is_drained
    }

    fn handle(&mut self, notice: &Notice) {
        if notice.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.watchers.values().for_each(|watched| watched.queue.lose());
        }
        if notice.flags.contains(ReadFlags::IGNORED) {
            for place in self.directories.remove(&notice.number).into_iter().flatten() {
                if let Some(watched) = self.watchers.get_mut(&place.watcher) {
                    watched.directories = watched.directories.saturating_sub(1);
                }
            }
            return;
        }
        let places = self.directories.get_mut(&notice.number).into_iter().flatten();
        let concerned: Vec<(u64, PathBuf, bool)> = places
            .map(|place| {
                let known = notice.name.as_ref().is_some_and(|name| place.announced.remove(name));
                let is_told = known && notice.flags.contains(ReadFlags::CREATE);
                (place.watcher, place.path.clone(), is_told)
            })
            .collect();
        for (watcher, directory, is_told) in concerned {
            if self.has_departed(watcher, &directory) {
                continue;
            }
            self.pass_on(watcher, &directory, notice, is_told);
        }
    }

    /// Whether a directory has left and not arrived anywhere; what happens in it is not seen.
    fn has_departed(&self, watcher: u64, directory: &Path) -> bool {
        let mut departed = self.departed.iter();
        departed.any(|one| one.watcher == watcher && directory.starts_with(&one.path))
    }

    fn pass_on(&mut self, watcher: u64, directory: &Path, notice: &Notice, is_told: bool) {
        let Some(watched) = self.watchers.get(&watcher) else { return };
        let path = match &notice.name {
            Some(name) => directory.join(name),
            // A directory below is told by its parent.
            None if directory == watched.root => directory.to_owned(),
            None => return,
        };
        let is_directory = notice.flags.contains(ReadFlags::ISDIR) && notice.name.is_some();
        let goes_down = watched.wish.recursive && is_directory;
        if goes_down && notice.flags.contains(ReadFlags::MOVED_TO) {
            // First, so that whoever hears of it finds it watched.
            self.arrive(watcher, notice.cookie, &path);
        }
        if is_told {
            return;
        }
        for change in changes(notice.flags) {
            self.tell(watcher, &path, change);
        }
        if goes_down && notice.flags.contains(ReadFlags::CREATE) {
            self.cover_or_lose(watcher, path, true);
        } else if goes_down && notice.flags.contains(ReadFlags::MOVED_FROM) {
            self.departed.push(Departed { cookie: notice.cookie, watcher, path });
        }
    }

    /// Goes on watching a directory under its new name, or begins to if it comes from elsewhere.
    fn arrive(&mut self, watcher: u64, cookie: u32, path: &Path) {
        let matches = |one: &Departed| one.cookie == cookie && one.watcher == watcher;
        let Some(found) = self.departed.iter().position(matches) else {
            return self.cover_or_lose(watcher, path.to_owned(), false);
        };
        let old = self.departed.swap_remove(found).path;
        let places = self.directories.values_mut().flatten();
        for place in places.filter(|place| place.watcher == watcher) {
            if let Ok(below) = place.path.strip_prefix(&old) {
                // Nothing below joins as an empty part, which would leave a slash at the end.
                let is_same = below.as_os_str().is_empty();
                place.path = if is_same { path.to_owned() } else { path.join(below) };
            }
        }
    }

    fn cover_or_lose(&mut self, watcher: u64, path: PathBuf, is_new: bool) {
        if self.cover(watcher, path, is_new).is_err()
            && let Some(watched) = self.watchers.get(&watcher)
        {
            watched.queue.lose();
        }
    }

    fn tell(&self, watcher: u64, path: &Path, change: Change) {
        let Some(watched) = self.watchers.get(&watcher) else { return };
        let name = path.strip_prefix(&watched.root).unwrap_or(path);
        let name = if name.as_os_str().is_empty() { Path::new(".") } else { name };
        let entry = match change {
            Change::Create | Change::Chmod | Change::Write => {
                watched.wish.entry_prefix.and_then(|prefix| files::entry(path, prefix).ok())
            }
            Change::Rename | Change::Remove => None,
        };
        watched.queue.push(Event { name: name.to_owned(), change, entry });
    }
}

fn full() -> Error {
    Error::Full { what: "watched directories", limit: DIRECTORIES_MAX }
}

/// What one event of the kernel says, in the order in which clients expect it.
fn changes(flags: ReadFlags) -> impl Iterator<Item = Change> {
    let meanings = [
        (ReadFlags::CREATE | ReadFlags::MOVED_TO, Change::Create),
        (ReadFlags::MOVED_FROM | ReadFlags::MOVE_SELF, Change::Rename),
        (ReadFlags::ATTRIB, Change::Chmod),
        (ReadFlags::MODIFY, Change::Write),
        (ReadFlags::DELETE | ReadFlags::DELETE_SELF, Change::Remove),
    ];
    meanings.into_iter().filter_map(move |(bits, change)| flags.intersects(bits).then_some(change))
}
