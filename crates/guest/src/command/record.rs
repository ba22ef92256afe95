use super::Outcome;
use crate::ring::Ring;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Instant, SystemTime},
};

/// What is known about one command.
#[derive(Debug)]
pub(crate) struct Record {
    id: String,
    text: String,
    started_at: SystemTime,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pid: Option<i32>,
    log: Option<Arc<Ring>>,
    ended: Option<(Outcome, SystemTime)>,
}

/// A command's status at one moment.
#[derive(Debug, Clone)]
pub struct Status {
    /// The command's id.
    pub id: String,
    /// The command as asked for.
    pub text: String,
    /// When it was started.
    pub started_at: SystemTime,
    /// How and when it ended; nothing while it runs.
    pub ended: Option<(Outcome, SystemTime)>,
}

impl Record {
    pub(crate) fn new(id: String, text: String) -> Self {
        let (started_at, started) = (SystemTime::now(), Instant::now());
        Self { id, text, started_at, started, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn attach_log(&self, log: Arc<Ring>) {
        self.state().log = Some(log);
    }

    pub(crate) fn log(&self) -> Option<Arc<Ring>> {
        self.state().log.clone()
    }

    pub(crate) fn drop_log(&self) {
        self.state().log = None;
    }

    pub(crate) fn set_pid(&self, pid: i32) {
        self.state().pid = Some(pid);
    }

    pub(crate) fn running_pid(&self) -> Option<i32> {
        let state = self.state();
        state.pid.filter(|_| state.ended.is_none())
    }

    pub(crate) fn finish(&self, outcome: Outcome) {
        self.state().ended = Some((outcome, SystemTime::now()));
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            id: self.id.clone(),
            text: self.text.clone(),
            started_at: self.started_at,
            ended: self.state().ended.clone(),
        }
    }
}
