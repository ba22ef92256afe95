//! Shell sessions: runs that share a directory, exported variables and functions.
//!
//! Every run is a fresh shell that restores the session's state, evaluates the text, and saves the
//! state in an exit trap. So `exit 7` ends a run and not the session, and a run that is killed
//! leaves the state as it was before.

use crate::{
    Error, Result,
    command::{Output, Pump, Record, Sink, interrupt_group},
    environment::Variables,
    guest::Shared,
    id,
    process::{Launch, Wiring, shell},
};
use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io::Read,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Mutex as AsyncMutex, mpsc};

const SESSIONS_MAX: usize = 256;
const STATE_BYTES_MAX: u64 = 4 << 20;
const OUTPUT_QUEUE: usize = 8;
/// The last line of a state that was saved to the end.
const END_MARK: &str = "# saved\n";

/// Restores, evaluates, saves. `$1` is the state's path without ending, `$2` the text.
const RUNNER: &str = r#"
__atoll_state=$1; __atoll_text=$2; set --
if [ -f "$__atoll_state" ]; then . "$__atoll_state"; fi
__atoll_save() {
  { export -p; [ -n "$BASH_VERSION" ] && declare -f; printf '# saved\n'; } >"$__atoll_state.new"
  pwd >"$__atoll_state.cwd"
} 2>/dev/null
trap '__atoll_code=$?; __atoll_save; exit $__atoll_code' EXIT
eval "$__atoll_text"
"#;

/// All shell sessions of the sandbox.
#[derive(Debug)]
pub struct Sessions {
    shared: Arc<Shared>,
    by_id: Mutex<HashMap<String, Arc<Session>>>,
}

#[derive(Debug)]
struct Session {
    directory: PathBuf,
    start: PathBuf,
    /// Held by the run at work; later runs wait for it in order.
    turn: Arc<AsyncMutex<()>>,
    current: Mutex<Option<Arc<Record>>>,
}

impl Sessions {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, by_id: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session that starts in `cwd`; answers its id.
    pub async fn open(&self, cwd: Option<&str>) -> Result<String> {
        let shared = Arc::clone(&self.shared);
        let start = match cwd {
            Some(cwd) if !cwd.is_empty() => shared.environment.expand(cwd, shared.user.as_ref()),
            _ => shared.environment.cwd().to_owned(),
        };
        let id = id::fresh();
        let name = id.clone();
        let opened = self.shared.start_blocking(move || Session::create(&shared, &name, start));
        let session = opened.await?;
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS_MAX {
            return Err(Error::Full { what: "shell sessions", limit: SESSIONS_MAX });
        }
        sessions.insert(id.clone(), Arc::new(session));
        Ok(id)
    }

    /// Runs text in a session, after the runs that were asked for before it. Both outputs arrive
    /// as stdout, in the order written.
    pub async fn run(
        &self,
        id: &str,
        text: String,
        cwd: Option<&str>,
        timeout: Option<Duration>,
    ) -> Result<mpsc::Receiver<Output>> {
        let session = self.find(id)?;
        let turn = Arc::clone(&session.turn).lock_owned().await;
        let cwd = cwd.filter(|cwd| !cwd.is_empty());
        let cwd = cwd.map(|cwd| self.shared.environment.expand(cwd, self.shared.user.as_ref()));
        let (shared, job) = (Arc::clone(&self.shared), Arc::clone(&session));
        let record = Arc::new(Record::new(id.to_owned(), text.clone()));
        let spawned = self.shared.start_blocking(move || {
            job.keep_state();
            job.launch(&shared, &text, cwd).spawn(&shared.reaper)
        });
        let spawned = match spawned.await {
            Err(refused @ Error::Invalid { .. }) => return Err(refused),
            other => other,
        };
        let (sender, output) = mpsc::channel(OUTPUT_QUEUE);
        session.set_current(Some(Arc::clone(&record)));
        let pump = Pump::new(Arc::clone(&self.shared), record, Sink::Live(sender));
        tokio::spawn(async move {
            let ended = Arc::clone(&session);
            pump.run(spawned, timeout, move || {
                ended.set_current(None);
                drop(turn);
            })
            .await;
        });
        Ok(output)
    }

    /// Interrupts the run at work in a session.
    pub fn interrupt(&self, id: &str) -> Result<()> {
        let session = self.find(id)?;
        session
            .running_pid()
            .filter(|pid| interrupt_group(&self.shared, *pid))
            .map(drop)
            .ok_or_else(|| Error::NotRunning { kind: "session", id: id.to_owned() })
    }

    /// Closes a session, interrupting the run at work.
    pub async fn close(&self, id: &str) -> Result<()> {
        let unknown = || Error::Unknown { kind: "session", id: id.to_owned() };
        let session = self.lock().remove(id).ok_or_else(unknown)?;
        if let Some(pid) = session.running_pid() {
            interrupt_group(&self.shared, pid);
        }
        self.shared.start_blocking(move || fs::remove_dir_all(&session.directory).ok()).await;
        Ok(())
    }

    fn find(&self, id: &str) -> Result<Arc<Session>> {
        let found = self.lock().get(id).cloned();
        found.ok_or_else(|| Error::Unknown { kind: "session", id: id.to_owned() })
    }
}

impl Session {
    fn create(shared: &Shared, id: &str, start: PathBuf) -> Result<Self> {
        if !start.is_dir() {
            let problem = format!("{}: name an existing directory", start.display());
            return Err(Error::invalid("cwd", problem));
        }
        let directory = std::env::temp_dir().join(format!(".atoll-session-{id}"));
        let failed = |source| Error::file("create", &directory, source);
        fs::DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
        if let Some(user) = &shared.user {
            chown(&directory, Some(user.uid), Some(user.gid)).map_err(failed)?;
        }
        let (turn, current) = (Arc::default(), Mutex::default());
        Ok(Self { directory, start, turn, current })
    }

    fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    fn launch(&self, shared: &Shared, text: &str, cwd: Option<PathBuf>) -> Launch {
        let identity = shared.user.clone();
        let env = shared.environment.compose(identity.as_ref(), &Variables::new());
        let state = self.state().to_string_lossy().into_owned();
        let words = [shell(&env), "-c", RUNNER, "session", &state, text];
        let argv = words.map(str::to_owned).to_vec();
        let cwd = cwd.or_else(|| self.last_cwd()).unwrap_or_else(|| self.start.clone());
        Launch { argv, env, cwd, identity, wiring: Wiring::Merged }
    }

    /// The directory the last run ended in, if it still exists.
    fn last_cwd(&self) -> Option<PathBuf> {
        let text = read_bounded(&self.directory.join("state.cwd"))?;
        let path = PathBuf::from(text.strip_suffix('\n').unwrap_or(&text));
        (path.is_absolute() && path.is_dir()).then_some(path)
    }

    /// Adopts the state that the last run saved, if it came to the end of saving.
    fn keep_state(&self) {
        let (state, saved) = (self.state(), self.directory.join("state.new"));
        if read_bounded(&saved).is_some_and(|text| text.ends_with(END_MARK)) {
            // A session that was closed meanwhile has no directory any more.
            fs::rename(saved, state).ok();
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Record>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_current(&self, record: Option<Arc<Record>>) {
        *self.current() = record;
    }

    fn running_pid(&self) -> Option<i32> {
        self.current().as_ref().and_then(|record| record.running_pid())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Usually gone already; this is for a guest that ends with its sessions open.
        fs::remove_dir_all(&self.directory).ok();
    }
}

fn read_bounded(path: &Path) -> Option<String> {
    let mut text = String::new();
    // Non-blocking: the session's own commands may put a pipe in the file's place.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.take(STATE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}
