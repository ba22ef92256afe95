//! Removing files without waiting for it.
//!
//! What is removed is first renamed into the trash folder, which is one step and leaves nothing
//! half there; one worker thread of the process then deletes what lies in the trash. Files stay
//! the work of strangers: see [`tree`] for how they are deleted.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SendError, Sender};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::config::Layout;

mod tree;

use tree::Removal;

#[cfg(test)]
mod tests;

/// Files deleted of one tree before the next one has its turn, so that a tree somebody still
/// writes into can't keep the others on the disk.
const TURN_ENTRIES: u64 = 100_000;
/// Characters of a removed folder's name that its name in the trash keeps, for a reader.
const LABEL_CHARS: usize = 64;

/// The worker's inbox. It holds only names of what is in the trash already.
static WORKER: Mutex<Option<Sender<Job>>> = Mutex::new(None);
/// Tells names in the trash apart.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The trash of one data folder. It must be on the disk of everything thrown into it.
pub(crate) struct Trash(PathBuf);

/// A tree in the trash that is to be deleted.
struct Job {
    root: PathBuf,
    removal: Removal,
}

impl Trash {
    /// The trash of a data folder.
    pub(crate) fn of(layout: &Layout) -> Self {
        Self(layout.trash())
    }

    /// Takes `path` away in one step and deletes it later. Fine when there is nothing; an error
    /// means that it is still there.
    pub(crate) fn throw(&self, path: &Path) -> io::Result<()> {
        self.take(CWD, path).map(drop)
    }

    /// The same for what is called `name` in an open folder; false when there is nothing.
    pub(crate) fn throw_from(&self, folder: impl AsFd, name: &OsStr) -> io::Result<bool> {
        self.take(folder.as_fd(), Path::new(name))
    }

    fn take(&self, folder: BorrowedFd<'_>, path: &Path) -> io::Result<bool> {
        let failed = |error: Errno| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("moving files into the trash: {error}"))
        };
        let root = open_folder(&self.0).map_err(failed)?;
        let label: String = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
            .take(LABEL_CHARS)
            .collect();
        loop {
            let name = numbered(&label, next_number());
            match rustix::fs::renameat(folder, path, &root, &name) {
                Ok(()) => {
                    submit(Job { root: self.0.clone(), removal: Removal::of(name) });
                    return Ok(true);
                }
                Err(Errno::NOENT) => return Ok(false),
                // An earlier server left something of this name.
                Err(Errno::EXIST | Errno::NOTEMPTY) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Deletes what an earlier server left in the trash.
    pub(crate) fn empty(&self) {
        submit(Job { root: self.0.clone(), removal: Removal::of_everything() });
    }
}

impl Job {
    /// Deletes some of the tree; whether nothing is left to do.
    fn turn(&mut self) -> bool {
        let done = match open_folder(&self.root) {
            Ok(root) => self.removal.turn(root.as_fd(), TURN_ENTRIES),
            Err(error) => {
                self.removal.note(error);
                true
            }
        };
        if done && let Some(error) = self.removal.failure() {
            let (trash, tree) = (self.root.display(), self.removal.label());
            tracing::warn!(%trash, tree, %error, "removed files stay until the next start");
        }
        done
    }
}

/// Hands a tree to the worker, which is started when there is none.
fn submit(job: Job) {
    let mut worker = WORKER.lock().unwrap_or_else(PoisonError::into_inner);
    let job = match worker.as_ref() {
        None => job,
        Some(inbox) => match inbox.send(job) {
            Ok(()) => return,
            Err(SendError(job)) => job,
        },
    };
    let (sender, inbox) = mpsc::channel();
    match std::thread::Builder::new().name("trash".into()).spawn(move || work(&inbox)) {
        Ok(_) => *worker = sender.send(job).is_ok().then_some(sender),
        Err(error) => tracing::warn!(%error, "removed files stay until the next start"),
    }
}

fn work(inbox: &Receiver<Job>) {
    let mut jobs = VecDeque::new();
    loop {
        if jobs.is_empty() {
            let Ok(job) = inbox.recv() else { return };
            jobs.push_back(job);
        }
        jobs.extend(inbox.try_iter());
        if let Some(mut job) = jobs.pop_front()
            && !job.turn()
        {
            jobs.push_back(job);
        }
    }
}

fn next_number() -> u64 {
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

fn numbered(label: &str, number: u64) -> CString {
    CString::new(format!("{label}.{number}")).expect("a label has no zero byte")
}

fn open_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}
