//! Directories watched for changes, through one inotify instance for the whole sandbox: the kernel
//! counts instances per user of the host, so they are dearer than watches.

mod hub;
mod queue;

use crate::{Error, Result, files::Entry, guest::Shared, sys};
use hub::Hub;
use queue::Queue;
use rustix::fs::inotify;
use std::{
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{io::unix::AsyncFd, sync::Notify};

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It came to be, or was moved here.
    Create,
    /// It was moved away.
    Rename,
    /// Its owner, mode, times or attributes changed.
    Chmod,
    /// Its content changed.
    Write,
    /// It was removed.
    Remove,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The path below the watched directory; `.` for the directory itself.
    pub name: PathBuf,
    /// What happened.
    pub change: Change,
    /// What is known about it right after, if asked for and still there.
    pub entry: Option<Entry>,
}

/// What to watch for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// Directories below too, also those that are made later.
    pub recursive: bool,
    /// Look at what has changed, and read texts whose attribute names begin with this.
    pub entry_prefix: Option<&'static str>,
    /// Directories of network file systems, whose changes made elsewhere are not seen.
    pub network_mounts: bool,
}

/// Events were lost, because nobody took them or the kernel had too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// One client's watch; dropping it ends it.
#[derive(Debug)]
pub struct Watcher {
    queue: Arc<Queue>,
    gone: Arc<Notify>,
}

/// All watches of the sandbox.
#[derive(Debug)]
pub struct Watches {
    shared: Arc<Shared>,
    live: Arc<tokio::sync::Mutex<Option<Live>>>,
    kept: Mutex<HashMap<String, Arc<Watcher>>>,
}

/// What exists while somebody watches.
#[derive(Debug, Clone)]
struct Live {
    hub: Arc<Mutex<Hub>>,
    /// A watcher has gone.
    gone: Arc<Notify>,
}

impl Watches {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, live: Arc::default(), kept: Mutex::default() }
    }

    /// Watches a directory from now on.
    pub async fn watch(&self, path: PathBuf, wish: Wish) -> Result<Watcher> {
        let mut slot = self.live.lock().await;
        let live = match &*slot {
            Some(live) => live.clone(),
            None => {
                let live = self.begin()?;
                slot.insert(live).clone()
            }
        };
        let queue = Arc::new(Queue::default());
        let watcher = Watcher { queue: Arc::clone(&queue), gone: Arc::clone(&live.gone) };
        // Held until it is added, so that the hub is not given up meanwhile.
        let add = move || {
            check(&path, wish)?;
            lock(&live.hub).add(path, wish, queue)
        };
        self.shared.file_blocking(add).await.map(|()| watcher)
    }

    fn begin(&self) -> Result<Live> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let opened = inotify::init(flags).map_err(std::io::Error::from);
        let opened = opened.and_then(|fd| sys::watch_file(File::from(fd)));
        let failed = "open inotify; the host may have to raise fs.inotify.max_user_instances";
        let source = Arc::new(opened.map_err(Error::system(failed))?);
        let hub = Arc::new(Mutex::new(Hub::new(Arc::clone(&source))));
        let live = Live { hub, gone: Arc::default() };
        let (shared, slot) = (Arc::clone(&self.shared), Arc::clone(&self.live));
        tokio::spawn(serve(shared, live.clone(), source, slot));
        Ok(live)
    }

    /// Keeps a watcher for a client that asks from time to time; answers its id.
    pub fn keep(&self, watcher: Watcher) -> String {
        let id = fresh_id();
        lock(&self.kept).insert(id.clone(), Arc::new(watcher));
        id
    }

    /// A kept watcher.
    pub fn find(&self, id: &str) -> Result<Arc<Watcher>> {
        let found = lock(&self.kept).get(id).cloned();
        found.ok_or_else(|| unknown(id))
    }

    /// Ends a kept watcher.
    pub fn remove(&self, id: &str) -> Result<()> {
        let removed = lock(&self.kept).remove(id);
        removed.map(drop).ok_or_else(|| unknown(id))
    }
}

impl Watcher {
    /// The next change. Safe to cancel.
    pub async fn next(&self) -> std::result::Result<Event, Lost> {
        self.queue.next().await
    }

    /// The next change if there is one.
    pub fn try_next(&self) -> Option<std::result::Result<Event, Lost>> {
        self.queue.try_next()
    }

    /// Tells a loss once more, to whoever asks next.
    pub fn remember_loss(&self) {
        self.queue.lose();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.queue.close();
        self.gone.notify_one();
    }
}

fn unknown(id: &str) -> Error {
    Error::Unknown { kind: "watcher", id: id.to_owned() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `w` and twenty letters and digits.
fn fresh_id() -> String {
    const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut bytes = [0u8; 20];
    getrandom::fill(&mut bytes).expect("Linux always has a random source");
    let letters = bytes.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
    std::iter::once('w').chain(letters).collect()
}

/// Whether the directory can be watched as wished.
fn check(path: &Path, wish: Wish) -> Result<()> {
    let found = fs::metadata(path).map_err(|error| Error::file("watch", path, error))?;
    let unsuitable = |problem: &str| {
        Err(Error::Unsuitable { path: path.to_owned(), problem: problem.to_owned() })
    };
    if !found.is_dir() {
        return unsuitable("is not a directory; only those can be watched");
    }
    if !wish.network_mounts && is_network_mount(path) {
        return unsuitable("lies on a network file system; allow network mounts to watch it");
    }
    Ok(())
}

fn is_network_mount(path: &Path) -> bool {
    // NFS, CIFS, SMB2 and FUSE.
    const MAGICS: [u32; 4] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546];
    rustix::fs::statfs(path).is_ok_and(|found| MAGICS.contains(&(found.f_type as u32)))
}

/// Moves events from the kernel to the watchers until the last of them has gone.
async fn serve(
    shared: Arc<Shared>,
    live: Live,
    source: Arc<AsyncFd<File>>,
    slot: Arc<tokio::sync::Mutex<Option<Live>>>,
) {
    loop {
        let ready = tokio::select! {
            // Not to be had only when the runtime ends.
            ready = source.readable() => ready.ok(),
            () = live.gone.notified() => None,
        };
        let hub = Arc::clone(&live.hub);
        let (is_drained, is_unused) = shared
            .file_blocking(move || {
                let mut hub = lock(&hub);
                (hub.drain(), hub.sweep())
            })
            .await;
        if let Some(mut ready) = ready
            && is_drained
        {
            ready.clear_ready();
        }
        if is_unused {
            let mut slot = slot.lock().await;
            // Asked again: somebody may have come meanwhile.
            if lock(&live.hub).sweep() {
                *slot = None;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
