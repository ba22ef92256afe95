//! When the sandbox counts as up: at once, or when its check has succeeded and its stock is warm.

use crate::{config::Check, logs};
use atoll_guest::{
    Guest,
    command::{Line, Output, Request},
    environment::Variables,
    ring::Ring,
};
use axum::{Router, extract::State, http::StatusCode, routing::get};
use std::sync::Arc;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

/// Output of a failed try that is told.
const QUOTE_BYTES: usize = 1000;

/// Nothing until it is decided; then why not, if not.
type Verdict = Option<Result<(), String>>;

/// What decides whether the sandbox is up.
pub(crate) struct Gate {
    ready: Option<Check>,
    warm: bool,
    decide: watch::Sender<Verdict>,
}

impl Gate {
    /// Nothing is decided yet.
    pub(crate) fn new(ready: Option<Check>, warm: bool) -> Self {
        Self { ready, warm, decide: watch::channel(None).0 }
    }

    /// `GET /atoll/up`: answers once the sandbox is up, or says why it never will be.
    pub(crate) fn router(&self) -> Router {
        Router::new().route("/atoll/up", get(up)).with_state(self.decide.subscribe())
    }

    /// Begins to decide; whatever the check looks for has been started.
    pub(crate) fn begin(self, guest: &Arc<Guest>, log: &Arc<Ring>) {
        let Self { ready, warm, decide } = self;
        if ready.is_none() && !warm {
            decide.send_replace(Some(Ok(())));
            return;
        }
        let (guest, log) = (Arc::clone(guest), Arc::clone(log));
        tokio::spawn(async move {
            let checked = match &ready {
                Some(check) => check_until_ready(check, &guest).await,
                None => Ok(()),
            };
            if let Err(problem) = &checked {
                logs::note(&log, problem);
            }
            if warm && checked.is_ok() {
                warm_up(&guest, &log).await;
            }
            decide.send_replace(Some(checked));
        });
    }
}

async fn up(State(mut verdict): State<watch::Receiver<Verdict>>) -> (StatusCode, String) {
    let decided = match verdict.wait_for(Option::is_some).await {
        Ok(decided) => (*decided).clone(),
        // Whoever decides has gone without a word.
        Err(_) => None,
    };
    match decided {
        Some(Ok(())) => (StatusCode::OK, String::new()),
        Some(Err(problem)) => (StatusCode::SERVICE_UNAVAILABLE, problem),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the check was interrupted".to_owned()),
    }
}

/// Starts what the first user would otherwise wait for.
async fn warm_up(guest: &Arc<Guest>, log: &Ring) {
    if let Err(error) = atoll_e2b::interpreter::warm_up(guest).await {
        // The sandbox is of use without; whoever runs code is told again.
        logs::note(log, &format!("a code interpreter cannot be started: {error}"));
    }
}

/// Tries until the command succeeds or the time is over.
async fn check_until_ready(check: &Check, guest: &Guest) -> Result<(), String> {
    let deadline = Instant::now() + check.within();
    let mut last = None;
    while Instant::now() < deadline {
        match try_once(check, guest, deadline).await {
            Ok(()) => return Ok(()),
            Err(problem) if Instant::now() < deadline => last = Some(problem),
            // One that the end of our patience cut short tells less than one before it.
            Err(problem) => last = last.or(Some(problem)),
        }
        sleep(check.every().min(deadline.saturating_duration_since(Instant::now()))).await;
    }
    let (seconds, last) = (check.within().as_secs_f64(), last.unwrap_or_default());
    Err(format!("the ready check did not succeed within {seconds} s; its last try {last}"))
}

async fn try_once(check: &Check, guest: &Guest, deadline: Instant) -> Result<(), String> {
    let request = Request {
        line: Line::Shell(check.command.clone()),
        cwd: None,
        env: Variables::new(),
        timeout: Some(deadline.saturating_duration_since(Instant::now())),
        user: None,
    };
    let running = guest.commands().run(request).await.map_err(|e| format!("failed: {e}"))?;
    let mut output = running.output;
    let mut said = Vec::new();
    while let Ok(Some(next)) = timeout_at(deadline, output.recv()).await {
        match next {
            Output::Stdout(bytes) | Output::Stderr(bytes) => {
                said.extend_from_slice(&bytes);
                said.drain(..said.len().saturating_sub(QUOTE_BYTES));
            }
            Output::Ended(end) if end.code == 0 => return Ok(()),
            Output::Ended(end) => {
                let how = end.problem.unwrap_or_else(|| format!("ended with code {}", end.code));
                return Err(told(&how, &said));
            }
        }
    }
    Err(told("took too long", &said))
}

fn told(how: &str, said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let said = if said.trim().is_empty() { "nothing" } else { said.trim() };
    format!("{how} and said: {said}")
}
