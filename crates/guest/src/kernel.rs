//! Code interpreters: contexts that run code in Jupyter kernels, one piece after another.
//!
//! Nothing is started or kept before it is asked for. A context's kernel starts with the first
//! thing it has to do, runs as the sandbox's user, and is replaced when it dies.

mod event;
mod keeper;
mod language;
mod live;
mod message;
mod orders;
mod place;
mod shell;
mod sink;
mod spec;
mod start;
mod text;
mod zmtp;

pub use event::{Event, Text};
pub use language::normalise;

use crate::{Error, Result, environment::Variables, guest::Shared, id, session::Sessions};
use keeper::{Job, Keeper};
use orders::Order;
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::{mpsc, oneshot};

const CONTEXTS_MAX: usize = 64;
/// Executions of one context that may wait in line; more wait to join it.
const JOBS_WAITING: usize = 64;
const ORDERS_WAITING: usize = 8;

/// All code contexts of the sandbox.
#[derive(Debug)]
pub struct Kernels {
    shared: Arc<Shared>,
    /// The shells behind contexts whose language is the shell's.
    sessions: Arc<Sessions>,
    /// In the order of their making.
    contexts: Mutex<Vec<Context>>,
}

#[derive(Debug, Clone)]
struct Context {
    info: Info,
    is_default: bool,
    has_started: Arc<AtomicBool>,
    jobs: mpsc::Sender<Job>,
    orders: mpsc::Sender<Order>,
}

/// What is known about a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Its id.
    pub id: String,
    /// The language it runs, by its full name.
    pub language: String,
    /// Where it starts.
    pub cwd: PathBuf,
}

/// Code to be run.
#[derive(Debug, Clone, Default)]
pub struct Execution {
    /// The code.
    pub code: String,
    /// Variables for this execution only.
    pub env: Variables,
}

impl Kernels {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let sessions = Arc::new(Sessions::new(Arc::clone(&shared)));
        Self { shared, sessions, contexts: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Context>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a context that starts in `cwd`; answers when its kernel is up.
    pub async fn open(&self, language: &str, cwd: Option<&str>) -> Result<Info> {
        let context = self.register(normalise(language), cwd, false)?;
        self.started(&context).await?;
        Ok(context.info)
    }

    /// The language's default context, made if there is none. Its kernel starts when it is used.
    pub fn default_for(&self, language: &str, cwd: Option<&str>) -> Result<Info> {
        let language = normalise(language);
        Ok(self.register(language, cwd, true)?.info)
    }

    /// Makes default contexts and answers when their kernels are up and have done once what is
    /// slow the first time.
    pub async fn prestart(&self, languages: &[&str], cwd: Option<&str>) -> Result<()> {
        let mut contexts = Vec::new();
        for language in languages {
            contexts.push(self.register(normalise(language), cwd, true)?);
        }
        // All are asked at once, so that they start beside each other.
        for context in &contexts {
            let (reply, _) = oneshot::channel();
            // A line that is full has somebody who starts it.
            context.jobs.try_send(Job::Start(reply)).ok();
        }
        for context in &contexts {
            self.started(context).await?;
        }
        Ok(())
    }

    /// Whether the image announces a kernel for any language. Blocks, for microseconds.
    pub fn are_installed(&self) -> bool {
        spec::any(self.shared.settings.current().variables())
    }

    /// Whether the image announces a kernel for this language, or it needs none.
    pub async fn has(&self, language: &str) -> bool {
        let language = normalise(language);
        let env = start::composed(&self.shared, &self.shared.settings.current()).await;
        let find = move || spec::find(&language, &env).is_some() || language == language::SHELL;
        self.shared.start_blocking(find).await
    }

    /// All contexts, oldest first.
    pub fn list(&self) -> Vec<Info> {
        self.lock().iter().map(|context| context.info.clone()).collect()
    }

    /// One context.
    pub fn find(&self, id: &str) -> Result<Info> {
        Ok(self.context(id)?.info)
    }

    /// Runs code in a context after what was asked for before it; answers when it is in line.
    /// Dropping the events interrupts the code.
    pub async fn execute(&self, id: &str, execution: Execution) -> Result<mpsc::Receiver<Event>> {
        let context = self.context(id)?;
        let Execution { code, env } = execution;
        if !env.is_empty() && language::assign(&context.info.language, &env, &[]).is_none() {
            let problem = format!(
                "variables of an execution cannot be set in {}; give them to the sandbox",
                context.info.language
            );
            return Err(Error::invalid("env_vars", problem));
        }
        let (events, receiver) = mpsc::channel(sink::CHANNEL);
        let job = Job::Execute { code, env, events };
        context.jobs.send(job).await.map_err(|_| unknown(id))?;
        Ok(receiver)
    }

    /// Answers when a context's kernel is up.
    pub async fn start(&self, id: &str) -> Result<()> {
        self.started(&self.context(id)?).await
    }

    /// Stops the execution at work in a context, if there is one.
    pub async fn interrupt(&self, id: &str) -> Result<()> {
        let context = self.context(id)?;
        context.orders.send(Order::Interrupt).await.map_err(|_| unknown(id))
    }

    /// Replaces a context's kernel; answers when the new one is up. The execution at work is cut
    /// off, those in line run in the new kernel.
    pub async fn restart(&self, id: &str) -> Result<()> {
        let context = self.context(id)?;
        let (reply, done) = oneshot::channel();
        context.orders.send(Order::Restart(reply)).await.map_err(|_| unknown(id))?;
        drop(context);
        done.await.map_err(|_| unknown(id))?
    }

    /// Deletes a context; the execution at work and those in line are cut off.
    pub async fn close(&self, id: &str) -> Result<()> {
        let context = {
            let mut contexts = self.lock();
            let found = contexts.iter().position(|context| context.info.id == id);
            contexts.remove(found.ok_or_else(|| unknown(id))?)
        };
        let (reply, done) = oneshot::channel();
        // A context that is gone already needs no closing.
        context.orders.send(Order::Close(reply)).await.ok();
        drop(context);
        done.await.ok();
        Ok(())
    }

    fn register(&self, language: String, cwd: Option<&str>, is_default: bool) -> Result<Context> {
        let mut contexts = self.lock();
        let same = |known: &&Context| known.is_default && known.info.language == language;
        if is_default && let Some(known) = contexts.iter().find(same) {
            return Ok(known.clone());
        }
        if contexts.len() >= CONTEXTS_MAX {
            return Err(Error::Full { what: "code contexts", limit: CONTEXTS_MAX });
        }
        let environment = self.shared.settings.current();
        let cwd = match cwd.filter(|cwd| !cwd.is_empty()) {
            Some(cwd) => environment.expand(cwd, environment.user()),
            None => environment.cwd().to_owned(),
        };
        let (jobs, queue) = mpsc::channel(JOBS_WAITING);
        let (orders, ordered) = mpsc::channel(ORDERS_WAITING);
        let keeper = Keeper {
            shared: Arc::clone(&self.shared),
            sessions: Arc::clone(&self.sessions),
            language: language.clone(),
            cwd: cwd.clone(),
            engine: None,
            has_started: Arc::default(),
        };
        let has_started = Arc::clone(&keeper.has_started);
        tokio::spawn(keeper.keep(queue, ordered));
        let info = Info { id: id::fresh(), language, cwd };
        let context = Context { info, is_default, has_started, jobs, orders };
        contexts.push(context.clone());
        Ok(context)
    }

    /// Answers when the kernel is up; a context that never was is taken back.
    async fn started(&self, context: &Context) -> Result<()> {
        if context.has_started.load(Ordering::Acquire) {
            return Ok(());
        }
        let id = &context.info.id;
        let (reply, done) = oneshot::channel();
        context.jobs.send(Job::Start(reply)).await.map_err(|_| unknown(id))?;
        let started = done.await.map_err(|_| unknown(id))?;
        if started.is_err() {
            self.lock().retain(|known| known.info.id != *id);
        }
        started
    }

    fn context(&self, id: &str) -> Result<Context> {
        let contexts = self.lock();
        contexts.iter().find(|context| context.info.id == id).cloned().ok_or_else(|| unknown(id))
    }
}

fn unknown(id: &str) -> Error {
    Error::Unknown { kind: "context", id: id.to_owned() }
}
