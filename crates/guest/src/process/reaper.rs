use crate::sys::{self, Look};
use std::{
    collections::HashMap,
    io,
    process::{Child, ExitStatus},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Notify, oneshot},
};

/// Whose children this process must reap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Pid 1: also the orphans that the kernel hands to it.
    Init,
    /// Any other process: only the children it started itself.
    Guest,
}

/// Resolves to the exit status once the child has ended.
pub type Exit = oneshot::Receiver<ExitStatus>;

/// The one place that waits for children.
///
/// A child that ends before its start returned is not lost: an unknown ended child stays a zombie
/// while any start is under way, and every start looks at its own child once more when it is known.
#[derive(Debug, Clone)]
pub struct Reaper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    role: Role,
    children: Mutex<Children>,
    started: Notify,
}

#[derive(Debug, Default)]
struct Children {
    known: HashMap<i32, oneshot::Sender<ExitStatus>>,
    starting: usize,
}

impl Reaper {
    /// Starts listening for ended children; needs a running tokio runtime with signals.
    pub fn start(role: Role) -> io::Result<Self> {
        let ended = signal(SignalKind::child())?;
        let shared = Arc::new(Shared { role, children: Mutex::default(), started: Notify::new() });
        tokio::spawn(listen(Arc::downgrade(&shared), ended));
        Ok(Self { shared })
    }

    /// Runs `start`, which spawns a child, and registers the child for waiting. Blocks for as long
    /// as the spawn takes, without holding the registry.
    pub fn watch(&self, start: impl FnOnce() -> io::Result<Child>) -> io::Result<(Child, Exit)> {
        self.shared.lock().starting += 1;
        let started = start();
        let mut children = self.shared.lock();
        children.starting -= 1;
        if self.shared.role == Role::Init && children.starting == 0 {
            self.shared.started.notify_one();
        }
        let child = started?;
        let (sender, exit) = oneshot::channel();
        let pid = child.id() as i32;
        children.known.insert(pid, sender);
        children.reap_known(pid);
        Ok((child, exit))
    }

    /// Signals a child's process group while the child has not been reaped; says whether it did.
    pub fn signal_group(&self, pid: i32, signal: i32) -> bool {
        let children = self.shared.lock();
        children.known.contains_key(&pid) && sys::signal_group(pid, signal).is_ok()
    }

    /// Signals a child, and it alone, while it has not been reaped; says whether it did.
    pub fn signal_child(&self, pid: i32, signal: i32) -> bool {
        let children = self.shared.lock();
        children.known.contains_key(&pid) && sys::signal_process(pid, signal).is_ok()
    }

    /// Kills what is left of an ended child's process group, unless the pid serves a new child.
    pub fn kill_remains(&self, pid: i32) {
        let children = self.shared.lock();
        if !children.known.contains_key(&pid) {
            // Nobody left is the usual case.
            sys::signal_group(pid, libc::SIGKILL).ok();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Children> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sweep(&self) {
        let mut children = self.lock();
        if self.role == Role::Init && children.reap_anyone() {
            return;
        }
        let pids: Vec<i32> = children.known.keys().copied().collect();
        for pid in pids {
            children.reap_known(pid);
        }
    }
}

impl Children {
    fn reap_known(&mut self, pid: i32) {
        if let Some(status) = sys::reap(pid)
            && let Some(waiter) = self.known.remove(&pid)
        {
            // The one who started it may have lost interest.
            waiter.send(status).ok();
        }
    }

    /// Reaps every ended child; gives up and answers false when an unknown one may belong to a
    /// start that is under way.
    fn reap_anyone(&mut self) -> bool {
        loop {
            match sys::peek(None) {
                Look::Running | Look::Nobody => return true,
                Look::Ended(pid) if self.known.contains_key(&pid) => self.reap_known(pid),
                Look::Ended(_) if self.starting > 0 => return false,
                Look::Ended(pid) => drop(sys::reap(pid)),
            }
        }
    }
}

async fn listen(shared: Weak<Shared>, mut ended: Signal) {
    loop {
        let Some(current) = shared.upgrade() else { return };
        current.sweep();
        tokio::select! {
            more = ended.recv() => if more.is_none() { return },
            () = current.started.notified() => {}
        }
    }
}
