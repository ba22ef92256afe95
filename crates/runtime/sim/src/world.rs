//! What exists in the simulation.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Action, Exit, Keep, Observed, Sandbox, SandboxId, SnapshotId, Source};
use atoll_engine::seam::{Event, RuntimeError};
use tokio::sync::mpsc;

use crate::fault::{Faults, Tally};
use crate::script::{self, Files};

/// Hints that may wait; more are lost, as the contract allows.
const EVENTS_WAITING_MAX: usize = 1024;

#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// `Absent`: half-made.
    pub(crate) state: Observed,
    pub(crate) files: Files,
    pub(crate) log: Vec<u8>,
    pub(crate) from: Option<SnapshotId>,
    /// The record it was last told; nothing for what no engine asked for.
    pub(crate) told: Option<Sandbox>,
    /// Its files alone were kept when it was paused.
    pub(crate) asleep: bool,
}

impl Item {
    /// The record is another than the one it was told.
    fn is_told_anew(&self, sandbox: &Sandbox) -> bool {
        self.told.as_ref().is_some_and(|told| told.access_token != sandbox.access_token)
    }

    /// It can become what the record says without being made again.
    fn can_become(&self, sandbox: &Sandbox) -> bool {
        let fits = |told: &Sandbox| told.spec.fits(&sandbox.spec);
        self.state == Observed::Running && self.told.as_ref().is_some_and(fits)
    }
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) items: BTreeMap<SandboxId, Item>,
    pub(crate) snapshots: BTreeMap<SnapshotId, Files>,
    pub(crate) in_flight: BTreeSet<SandboxId>,
    pub(crate) faults: Faults,
    pub(crate) tally: Tally,
    events: Option<mpsc::Sender<Event>>,
}

/// Images of this simulated registry need credentials, whatever they are.
fn is_private(reference: &str) -> bool {
    reference.starts_with("private/")
}

impl World {
    pub(crate) fn subscribe(&mut self) -> mpsc::Receiver<Event> {
        let (sender, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
        self.events = Some(sender);
        receiver
    }

    pub(crate) fn tell(&self, event: Event) {
        if let Some(events) = &self.events {
            // A hint that doesn't fit is lost, as the contract allows.
            let _lost = events.try_send(event);
        }
    }

    pub(crate) fn seen(&self, id: &SandboxId) -> Observed {
        self.items.get(id).map_or(Observed::Absent, |item| item.state.clone())
    }

    /// The first half of a creation: something is there that isn't a sandbox yet.
    pub(crate) fn prepare(&mut self, sandbox: &Sandbox) -> Result<(), RuntimeError> {
        if let Some(item) = self.items.get_mut(&sandbox.id) {
            if !item.is_told_anew(sandbox) {
                return Ok(());
            }
            if item.told.as_ref().is_some_and(|told| told.stock_of.is_none()) {
                self.tally.shared += 1;
            }
            if item.can_become(sandbox) {
                item.told = Some(sandbox.clone());
                return Ok(());
            }
        }
        let (files, from) = match &sandbox.spec.source {
            Source::Image(image) if is_private(&image.reference) && image.auth.is_none() => {
                return Err(RuntimeError::permanent(
                    "IMAGE_PULL_FAILED",
                    "the registry asks for credentials",
                    "give a user name and a password",
                ));
            }
            Source::Image(_) => (Files::default(), None),
            Source::Snapshot(id) => {
                let files = self.snapshots.get(id).cloned().ok_or_else(|| {
                    let message = format!("snapshot {id} is not there");
                    RuntimeError::permanent("SNAPSHOT_MISSING", &message, "take another one")
                })?;
                (files, Some(id.clone()))
            }
        };
        let told = Some(sandbox.clone());
        let state = Observed::Absent;
        let item = Item { state, files, log: Vec::new(), from, told, asleep: false };
        if self.items.insert(sandbox.id.clone(), item).is_some() {
            self.tally.removed += 1;
        }
        self.tally.created += 1;
        Ok(())
    }

    /// Makes `action` true at once.
    pub(crate) fn apply(&mut self, sandbox: &Sandbox, action: Action) -> Observed {
        let id = &sandbox.id;
        match (action, self.items.get_mut(id)) {
            (Action::Create, Some(item)) if item.state == Observed::Absent => {
                item.log.clear();
                self.start(sandbox);
            }
            (Action::Pause, Some(item)) if item.state == Observed::Running => {
                item.state = Observed::Paused;
                item.asleep = sandbox.life.keep() == Keep::Files;
            }
            (Action::Resume, Some(item)) if item.state == Observed::Paused => {
                if item.asleep {
                    self.start(sandbox);
                } else {
                    item.state = Observed::Running;
                }
            }
            (Action::Remove, Some(_)) => self.remove(id),
            (Action::Create | Action::Pause | Action::Resume, Some(_)) | (_, None) => {}
        }
        self.seen(id)
    }

    /// Runs its entrypoint over the files it has.
    fn start(&mut self, sandbox: &Sandbox) {
        let Some(item) = self.items.get_mut(&sandbox.id) else { return };
        let ran = script::run(&sandbox.spec.entrypoint, &mut item.files);
        item.log.extend(ran.log);
        (item.state, item.asleep) = (Observed::Running, false);
        if let Some(code) = ran.code {
            self.exit(&sandbox.id, code);
        }
    }

    pub(crate) fn remove(&mut self, id: &SandboxId) {
        if self.items.remove(id).is_some() {
            self.tally.removed += 1;
        }
    }

    /// Its first process ends, unless it has ended before.
    pub(crate) fn exit(&mut self, id: &SandboxId, code: i32) {
        let Some(item) = self.items.get_mut(id) else { return };
        if matches!(item.state, Observed::Running | Observed::Paused) {
            let exit = Exit { code, out_of_memory: false, message: String::new() };
            item.state = Observed::Exited(exit);
            let seen = item.state.clone();
            self.tell(Event::Seen(id.clone(), seen));
        }
    }

    pub(crate) fn begin(&mut self, id: &SandboxId) {
        self.tally.begun += 1;
        if !self.in_flight.insert(id.clone()) {
            self.tally.overlaps += 1;
        }
        self.tally.at_once_max = self.tally.at_once_max.max(self.in_flight.len() as u64);
    }
}
