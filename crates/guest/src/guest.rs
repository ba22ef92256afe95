use crate::{
    Error, Identity, Result,
    accounts::{Accounts, Login},
    command::Commands,
    environment::{Environment, Variables},
    job::Jobs,
    kernel::Kernels,
    metrics::Meter,
    process::{Reaper, Role},
    session::Sessions,
    settings::{Settings, Values, unless_own},
    sys,
    terminal::Terminals,
    watch::Watches,
};
use std::{path::PathBuf, sync::Arc};
use tokio::sync::Semaphore;

/// File operations at work at once; more of them wait for each other and for nothing else.
const FILE_THREADS: usize = 64;
/// Process starts and log writes at work at once.
const START_THREADS: usize = 256;

/// How the guest is set up.
#[derive(Debug, Default)]
pub struct Options {
    /// The sandbox's variables.
    pub env: Variables,
    /// Where commands start; `/` when absent.
    pub cwd: Option<PathBuf>,
    /// Who commands run as unless they say otherwise; the agent's own identity when absent.
    pub user: Option<Identity>,
    /// A secret that every caller must present, if any.
    pub access_token: Option<String>,
}

/// Everything that can be done inside this sandbox.
#[derive(Debug)]
pub struct Guest {
    shared: Arc<Shared>,
    commands: Commands,
    sessions: Sessions,
    terminals: Terminals,
    jobs: Jobs,
    watches: Watches,
    kernels: Kernels,
    meter: Arc<Meter>,
    access_token: Option<String>,
}

/// What all parts of the guest use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) reaper: Reaper,
    pub(crate) settings: Arc<Settings>,
    files: Arc<Semaphore>,
    starts: Arc<Semaphore>,
}

impl Guest {
    /// Sets the guest up; needs a running tokio runtime with input, signals and time.
    pub fn new(role: Role, options: Options) -> Result<Arc<Self>> {
        let reaper = Reaper::start(role).map_err(Error::system("listen for ended processes"))?;
        Ok(Self::with_reaper(reaper, options))
    }

    /// Sets the guest up around a reaper that already runs.
    pub fn with_reaper(reaper: Reaper, options: Options) -> Arc<Self> {
        let Options { env, cwd: workdir, user, access_token } = options;
        let shared = Arc::new(Shared {
            reaper,
            settings: Arc::new(Settings::new(Values { env, user, workdir })),
            files: Arc::new(Semaphore::new(FILE_THREADS)),
            starts: Arc::new(Semaphore::new(START_THREADS)),
        });
        Arc::new(Self {
            commands: Commands::new(Arc::clone(&shared)),
            sessions: Sessions::new(Arc::clone(&shared)),
            terminals: Terminals::new(Arc::clone(&shared)),
            jobs: Jobs::new(Arc::clone(&shared)),
            watches: Watches::new(Arc::clone(&shared)),
            kernels: Kernels::new(Arc::clone(&shared)),
            meter: Arc::new(Meter::start()),
            shared,
            access_token,
        })
    }

    /// Commands.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Shell sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Terminals.
    pub fn terminals(&self) -> &Terminals {
        &self.terminals
    }

    /// Processes that several clients may follow and feed.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Directories that are watched for changes.
    pub fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Code interpreters.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// The resource meter.
    pub async fn metrics(&self) -> crate::metrics::Sample {
        let meter = Arc::clone(&self.meter);
        self.shared.start_blocking(move || meter.sample()).await
    }

    /// The secret that callers must present, if any.
    pub fn access_token(&self) -> Option<&str> {
        self.access_token.as_deref()
    }

    /// The identity of a user id and group id, with the groups that the account files give it.
    pub async fn identity(&self, uid: u32, gid: u32) -> Identity {
        self.shared.start_blocking(move || Accounts::load().identity(uid, Some(gid))).await
    }

    /// Expands `~` and variables in a path argument and makes it absolute.
    pub fn expand(&self, path: &str) -> PathBuf {
        self.shared.settings.current().expand(path, None)
    }

    /// What commands start from at this moment.
    pub fn environment(&self) -> Arc<Environment> {
        self.shared.settings.current()
    }

    /// What commands start from, to be replaced when the sandbox is claimed.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.shared.settings
    }

    /// The user with this name, or the sandbox's own when none is given.
    pub async fn login(&self, name: Option<String>) -> Option<Login> {
        let environment = self.environment();
        let find = move || {
            let accounts = Accounts::load();
            match name {
                Some(name) => accounts.login(&name),
                None => Some(accounts.login_default(environment.user())),
            }
        };
        self.shared.start_blocking(find).await
    }

    /// Runs a file operation on a blocking thread, as another user if asked.
    pub async fn file_operation<T: Send + 'static>(
        &self,
        identity: Option<Identity>,
        operation: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match identity.and_then(unless_own) {
            None => self.shared.file_blocking(operation).await,
            Some(identity) => act_as(&self.shared.files, identity, operation).await,
        }
    }
}

impl Shared {
    /// Runs something short that blocks, such as a process start.
    pub(crate) async fn start_blocking<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        blocking(&self.starts, operation).await
    }

    /// Runs a file operation, queueing only behind other file operations.
    pub(crate) async fn file_blocking<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        blocking(&self.files, operation).await
    }

    /// Touches files with the rights of the sandbox's user, as that user's own commands would.
    pub(crate) async fn as_user<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match self.settings.current().user().cloned() {
            None => self.start_blocking(operation).await,
            Some(user) => act_as(&self.starts, user, operation).await,
        }
    }
}

/// Runs a file operation as another user, on a thread of its own that ends with it: the changed
/// identity can leak nowhere.
async fn act_as<T: Send + 'static>(
    gate: &Arc<Semaphore>,
    identity: Identity,
    operation: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let act = move || {
        let run = move || {
            sys::assume_file_identity(&identity)
                .map_err(Error::system("act as the user id and group id given"))?;
            operation()
        };
        let thread = std::thread::Builder::new().name("file-as-user".to_owned()).spawn(run);
        let thread = thread.map_err(Error::system("start a thread"))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    };
    blocking(gate, act).await
}

async fn blocking<T: Send + 'static>(
    gate: &Arc<Semaphore>,
    operation: impl FnOnce() -> T + Send + 'static,
) -> T {
    let permit = Arc::clone(gate).acquire_owned().await.expect("the gates are never closed");
    let task = tokio::task::spawn_blocking(move || {
        // The permit goes with the thread: a caller that stops waiting does not free it early.
        let _permit = permit;
        operation()
    });
    task.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
}
