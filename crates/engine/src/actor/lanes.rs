//! How many actions run at once. Short ones have a lane of their own, so that a pause or a removal
//! never waits behind minutes of image pulls.

use std::collections::{BTreeSet, VecDeque};

use atoll_core::{Action, SandboxId};

use super::record::WorkKind;

pub(super) struct Lanes {
    slow: Lane,
    quick: Lane,
}

struct Lane {
    free: usize,
    waiting: VecDeque<SandboxId>,
    /// The same ids as `waiting`, to keep each at most once.
    listed: BTreeSet<SandboxId>,
}

impl Lanes {
    pub(super) fn new(at_once: usize) -> Self {
        let lane =
            || Lane { free: at_once.max(1), waiting: VecDeque::new(), listed: BTreeSet::new() };
        Self { slow: lane(), quick: lane() }
    }

    fn lane(&mut self, kind: &WorkKind) -> &mut Lane {
        match kind {
            WorkKind::Act(Action::Create) | WorkKind::Keep(_) => &mut self.slow,
            WorkKind::Act(Action::Pause | Action::Resume | Action::Remove) => &mut self.quick,
        }
    }

    /// Takes a place, or queues `id` for one and says no.
    pub(super) fn enter(&mut self, kind: &WorkKind, id: &SandboxId) -> bool {
        let lane = self.lane(kind);
        if lane.free > 0 {
            lane.free -= 1;
            return true;
        }
        if lane.listed.insert(id.clone()) {
            lane.waiting.push_back(id.clone());
        }
        false
    }

    pub(super) fn leave(&mut self, kind: &WorkKind) {
        self.lane(kind).free += 1;
    }

    /// Somebody who waited and may try to enter again.
    pub(super) fn next(&mut self) -> Option<SandboxId> {
        let lane = [&mut self.quick, &mut self.slow]
            .into_iter()
            .find(|lane| lane.free > 0 && !lane.waiting.is_empty())?;
        let id = lane.waiting.pop_front()?;
        lane.listed.remove(&id);
        Some(id)
    }
}
