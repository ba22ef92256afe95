//! What can go wrong on purpose.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use atoll_core::Action;
use atoll_engine::Clock;
use atoll_engine::seam::RuntimeError;
use tokio::sync::watch;

/// Random trouble, the same for the same seed.
#[derive(Clone, Copy, Debug)]
pub struct Chaos {
    /// Where the randomness starts.
    pub seed: u64,
    /// Of a hundred actions, so many fail for a while.
    pub transient_percent: u64,
    /// Of a hundred actions, so many fail for good.
    pub permanent_percent: u64,
    /// An action lets others run up to so many times before and after it takes effect.
    pub yields_max: u64,
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Creations that took effect; repetitions don't count.
    pub created: u64,
    /// Removals that took effect.
    pub removed: u64,
    /// Actions begun.
    pub begun: u64,
    /// Snapshots begun.
    pub snapshots: u64,
    /// Actions dropped before they ended.
    pub dropped: u64,
    /// Times that an action began while another for the same sandbox was in flight.
    pub overlaps: u64,
    /// Times that a sandbox told one owner's secrets was given to another.
    pub shared: u64,
    /// Most actions in flight at once.
    pub at_once_max: u64,
}

#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) scheduled: VecDeque<RuntimeError>,
    pub(crate) chaos: Option<Chaos>,
    pub(crate) delay: Option<(Arc<dyn Clock>, Duration)>,
    /// Actions of this kind wait while the channel says so.
    pub(crate) held: watch::Sender<Option<Action>>,
    /// Snapshots wait while the channel says so.
    pub(crate) snapshots_held: watch::Sender<bool>,
}

pub(crate) fn busy() -> RuntimeError {
    RuntimeError::transient("SIM_BUSY", "the simulated machine is busy", "try again")
}

pub(crate) fn broken() -> RuntimeError {
    RuntimeError::permanent("SIM_BROKEN", "the simulated machine refused", "create it again")
}

/// A small generator (splitmix64): repeatable, not secret.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Faults {
    /// The failure of the next action, if it fails.
    pub(crate) fn next_failure(&mut self) -> Option<RuntimeError> {
        if let Some(scheduled) = self.scheduled.pop_front() {
            return Some(scheduled);
        }
        let chaos = self.chaos.as_mut()?;
        let draw = random(&mut chaos.seed) % 100;
        if draw < chaos.transient_percent {
            return Some(busy());
        }
        (draw < chaos.transient_percent + chaos.permanent_percent).then(broken)
    }

    /// How often the next step lets others run first.
    pub(crate) fn next_yields(&mut self) -> u64 {
        let yields = |chaos: &mut Chaos| random(&mut chaos.seed) % (chaos.yields_max + 1);
        self.chaos.as_mut().map_or(0, yields)
    }
}
