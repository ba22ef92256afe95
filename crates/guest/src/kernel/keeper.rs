//! The one who owns a context's kernel and gives it one piece of code at a time.

use super::{
    event::Event,
    language,
    live::Live,
    orders::{Ending, Order, Orders},
    shell::Shell,
    sink::Sink,
    start,
};
use crate::{Error, Result, environment::Variables, guest::Shared, session::Sessions};
use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::{mpsc, oneshot};

/// What waits in line.
#[derive(Debug)]
pub(super) enum Job {
    /// Be ready for the next execution.
    Start(oneshot::Sender<Result<()>>),
    /// Run code.
    Execute {
        code: String,
        /// Variables for this execution only.
        env: Variables,
        events: mpsc::Sender<Event>,
    },
}

#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) shared: Arc<Shared>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) language: String,
    pub(super) cwd: PathBuf,
    pub(super) engine: Option<Engine>,
    /// Set for good when the first kernel is up.
    pub(super) has_started: Arc<AtomicBool>,
}

/// What runs the code.
#[derive(Debug)]
pub(super) enum Engine {
    Kernel(Box<Live>),
    Shell(Shell),
}

/// Whether a context goes on.
enum Next {
    GoOn,
    Close(Option<oneshot::Sender<()>>),
}

impl Keeper {
    /// Works until the context is closed or all who could ask have gone.
    pub(super) async fn keep(mut self, mut jobs: mpsc::Receiver<Job>, mut orders: Orders) {
        let closing = loop {
            let next = tokio::select! {
                biased;
                order = orders.recv() => self.obey(order).await,
                job = jobs.recv() => match job {
                    Some(job) => self.work(job, &mut orders).await,
                    None => Next::Close(None),
                },
                () = died(&mut self.engine) => {
                    self.stop().await;
                    Next::GoOn
                }
            };
            if let Next::Close(reply) = next {
                break reply;
            }
        };
        self.stop().await;
        if let Some(reply) = closing {
            reply.send(()).ok();
        }
    }

    async fn obey(&mut self, order: Option<Order>) -> Next {
        match order {
            // Nothing is at work.
            Some(Order::Interrupt) => Next::GoOn,
            Some(Order::Restart(reply)) => {
                self.stop().await;
                reply.send(self.ensure().await).ok();
                Next::GoOn
            }
            Some(Order::Close(reply)) => Next::Close(Some(reply)),
            None => Next::Close(None),
        }
    }

    async fn work(&mut self, job: Job, orders: &mut Orders) -> Next {
        match job {
            Job::Start(reply) => {
                reply.send(self.ensure().await).ok();
                Next::GoOn
            }
            // Whoever asked has left before its turn came.
            Job::Execute { events, .. } if events.is_closed() => Next::GoOn,
            Job::Execute { code, env, events } => {
                self.execute(code, env, Sink::new(events), orders).await
            }
        }
    }

    async fn execute(
        &mut self,
        code: String,
        env: Variables,
        mut sink: Sink,
        orders: &mut Orders,
    ) -> Next {
        let mut ending = self.attempt(&code, &env, &mut sink, orders).await;
        if let Ending::Died { began: false, .. } = ending {
            // The kernel had ended before, unnoticed; the code has not run.
            self.stop().await;
            ending = self.attempt(&code, &env, &mut sink, orders).await;
        }
        match ending {
            Ending::Done => {
                // The listener learns of the end before anything is tidied up.
                drop(sink);
                self.tidy(&env, orders).await
            }
            Ending::Died { reason, .. } => {
                self.stop().await;
                sink.finish(Some(Event::Died { reason })).await;
                Next::GoOn
            }
            Ending::Ordered(order) => {
                // A listener that is slow must not hold the order up.
                tokio::spawn(sink.finish(Some(Event::CutOff)));
                self.obey(order).await
            }
        }
    }

    async fn attempt(
        &mut self,
        code: &str,
        env: &Variables,
        sink: &mut Sink,
        orders: &mut Orders,
    ) -> Ending {
        if let Err(error) = self.ensure().await {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            let reason = format!("{error}{}", source.unwrap_or_default());
            return Ending::Died { reason, began: true };
        }
        match self.prepare(env, orders).await {
            Ending::Done => self.run(code, sink, orders).await,
            Ending::Died { reason, .. } => Ending::Died { reason, began: false },
            ordered => ordered,
        }
    }

    /// Runs code of the agent's own; one that fails changes nothing for the code that follows.
    async fn run_silently(&mut self, code: Option<String>, orders: &mut Orders) -> Ending {
        let Some(code) = code.filter(|code| !code.is_empty()) else { return Ending::Done };
        self.run(&code, &mut Sink::silent(), orders).await
    }

    async fn run(&mut self, code: &str, sink: &mut Sink, orders: &mut Orders) -> Ending {
        match &mut self.engine {
            Some(Engine::Kernel(live)) => live.run(&self.shared, code, sink, orders).await,
            Some(Engine::Shell(shell)) => shell.run(code, sink, orders).await,
            None => Ending::Died { reason: "the kernel has ended".to_owned(), began: false },
        }
    }

    /// Brings the variables up to date: the sandbox's may have changed since the kernel started,
    /// and the execution may have some of its own.
    async fn prepare(&mut self, env: &Variables, orders: &mut Orders) -> Ending {
        let environment = self.shared.settings.current();
        let wanted = start::composed(&self.shared, &environment).await;
        let Some(engine) = &mut self.engine else { return Ending::Done };
        let (applied, own) = engine.variables();
        let changed = wanted.iter().filter(|(name, value)| applied.get(*name) != Some(value));
        let mut set: Variables = changed
            .filter(|(name, _)| !own.is_some_and(|own| own.contains(*name)))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        set.extend(env.iter().map(|(name, value)| (name.clone(), value.clone())));
        let gone: Vec<String> = applied
            .keys()
            .filter(|name| !wanted.contains_key(*name) && !env.contains_key(*name))
            .cloned()
            .collect();
        engine.apply(wanted);
        if set.is_empty() && gone.is_empty() {
            return Ending::Done;
        }
        let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
        let code = language::assign(&self.language, &set, &gone);
        self.run_silently(code, orders).await
    }

    /// Takes an execution's own variables back: to the sandbox's values, or away.
    async fn tidy(&mut self, env: &Variables, orders: &mut Orders) -> Next {
        let (Some(engine), false) = (&mut self.engine, env.is_empty()) else { return Next::GoOn };
        let (applied, _) = engine.variables();
        let known = env.keys().filter_map(|name| applied.get_key_value(name));
        let set = known.map(|(name, value)| (name.clone(), value.clone())).collect();
        let unset: Vec<&str> =
            env.keys().filter(|name| !applied.contains_key(*name)).map(String::as_str).collect();
        let code = language::assign(&self.language, &set, &unset);
        match self.run_silently(code, orders).await {
            Ending::Done => Next::GoOn,
            Ending::Died { .. } => {
                self.stop().await;
                Next::GoOn
            }
            Ending::Ordered(order) => self.obey(order).await,
        }
    }

    /// Starts the kernel unless it is up.
    async fn ensure(&mut self) -> Result<()> {
        if self.engine.is_none() {
            self.engine = Some(self.start().await?);
            self.has_started.store(true, Ordering::Release);
        }
        Ok(())
    }

    async fn start(&self) -> Result<Engine> {
        if self.language == language::SHELL {
            let applied = start::composed(&self.shared, &self.shared.settings.current()).await;
            let shell = Shell::start(Arc::clone(&self.sessions), &self.cwd, applied).await?;
            return Ok(Engine::Shell(shell));
        }
        let mut live = start::start(&self.shared, &self.language, &self.cwd).await?;
        let warm_up = language::warm_up(&self.language);
        if !warm_up.is_empty() {
            // Nobody gives orders through this end: the sender lives as long as the run.
            let (_sender, mut none) = mpsc::channel(1);
            let mut sink = Sink::silent();
            let ending = live.run(&self.shared, warm_up, &mut sink, &mut none).await;
            if let Ending::Died { reason, .. } = ending {
                live.stop(&self.shared).await;
                let source = std::io::Error::other(reason);
                return Err(Error::System { action: "start the kernel", source });
            }
        }
        Ok(Engine::Kernel(Box::new(live)))
    }

    async fn stop(&mut self) {
        match self.engine.take() {
            Some(Engine::Kernel(live)) => live.stop(&self.shared).await,
            Some(Engine::Shell(shell)) => shell.stop().await,
            None => {}
        }
    }
}

impl Engine {
    /// The sandbox's variables as they were applied, and the names that are the kernel's.
    fn variables(&self) -> (&Variables, Option<&BTreeSet<String>>) {
        match self {
            Self::Kernel(live) => (&live.applied, Some(&live.own_variables)),
            Self::Shell(shell) => (&shell.applied, None),
        }
    }

    fn apply(&mut self, variables: Variables) {
        match self {
            Self::Kernel(live) => live.applied = variables,
            Self::Shell(shell) => shell.applied = variables,
        }
    }
}

/// Resolves when an idle kernel has ended.
async fn died(engine: &mut Option<Engine>) {
    match engine {
        Some(Engine::Kernel(live)) => live.idle().await,
        _ => std::future::pending().await,
    }
}
