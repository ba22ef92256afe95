//! Who may reach a sandbox, and waking one that sleeps.

use std::sync::Arc;
use std::time::Duration;

use atoll_control::Access;
use atoll_core::{Error, ErrorKind, Phase, Result, Sandbox, SandboxId};

use super::Engine;
use super::control::no_sandbox;
use crate::actor::{Edit, Request};

/// How long somebody who connects waits for a sandbox to wake.
const WAKE_PATIENCE: Duration = Duration::from_secs(60);

/// Takes as long for a wrong token as for the right one.
fn same_token(given: &str, right: &str) -> bool {
    let pairs = given.bytes().zip(right.bytes());
    given.len() == right.len() && pairs.fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

/// Why nobody can connect in this phase.
fn refusal(id: &SandboxId, phase: Phase) -> Result<()> {
    match phase {
        Phase::Running => Ok(()),
        Phase::Pausing | Phase::Paused => {
            Err(Error::conflict(format!("sandbox {id} is paused; resume it first"))
                .with_reason("SANDBOX_PAUSED"))
        }
        Phase::Queued
        | Phase::Starting
        | Phase::Resuming
        | Phase::Stopping
        | Phase::Ended
        | Phase::Failed
        | Phase::Gone => Err(Error::conflict(format!(
            "sandbox {id} is not running; look at its state for the reason"
        ))
        .with_reason("SANDBOX_NOT_RUNNING")),
    }
}

fn sleeps(phase: Phase) -> bool {
    matches!(phase, Phase::Pausing | Phase::Paused | Phase::Resuming)
}

impl Engine {
    fn reachable(&self, access: &Access, id: &SandboxId) -> Result<Arc<Sandbox>> {
        let sandbox = self.0.view.sandbox(id).ok_or_else(|| no_sandbox(id))?;
        let allowed = match access {
            Access::Tenant(tenant) => sandbox.tenant == *tenant,
            Access::Token(token) => same_token(token, &sandbox.access_token),
            Access::Signed => true,
        };
        if allowed { Ok(sandbox) } else { Err(no_sandbox(id)) }
    }

    /// Answers when somebody with `access` can connect, waking the sandbox if that is its wish.
    pub(super) async fn awake(&self, access: &Access, id: &SandboxId) -> Result<()> {
        let sandbox = self.reachable(access, id)?;
        let phase = sandbox.life.phase();
        let Some(wake_for) = sandbox.spec.wake_for.filter(|_| sleeps(phase)) else {
            return refusal(id, phase);
        };
        match tokio::time::timeout(WAKE_PATIENCE, self.wake(id, wake_for)).await {
            Ok(woken) => woken,
            Err(_impatient) => {
                let seconds = WAKE_PATIENCE.as_secs();
                let message = format!("sandbox {id} did not wake within {seconds} s; try again");
                Err(Error::unavailable(message).with_reason("SANDBOX_NOT_RUNNING"))
            }
        }
    }

    /// Whoever comes first has it resumed; the others find that it is being resumed.
    async fn wake(&self, id: &SandboxId, wake_for: Duration) -> Result<()> {
        loop {
            let mut changes = self.0.view.subscribe(id).ok_or_else(|| no_sandbox(id))?;
            let changing = |phase| matches!(phase, Phase::Pausing | Phase::Resuming);
            let settled = changes.wait_for(|sandbox| !changing(sandbox.life.phase())).await;
            let phase = settled.map_err(|_hidden| no_sandbox(id))?.life.phase();
            if phase != Phase::Paused {
                return refusal(id, phase);
            }
            let until = self.0.clock.now().saturating_add(wake_for);
            let edit = Edit::Wake(until);
            match self.ask(|reply| Request::Edit { id: id.clone(), edit, reply }).await {
                // It may have been paused again or killed meanwhile: look again.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
    }
}
