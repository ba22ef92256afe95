//! How many actions run at once. Short ones have a lane of their own, so that a pause or a removal
//! never waits behind minutes of image pulls. Stock of warm pools has a small lane that gives way
//! to creations somebody waits for.

use std::collections::{BTreeSet, VecDeque};

use atoll_core::SandboxId;

/// Where an action queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Creations and snapshots.
    Slow,
    /// All that takes milliseconds, taking stock among it.
    Quick,
    /// Creations of stock.
    Stock,
}

pub(super) struct Lanes {
    slow: Places,
    quick: Places,
    stock: Places,
}

struct Places {
    free: usize,
    waiting: VecDeque<SandboxId>,
    /// The same ids as `waiting`, to keep each at most once.
    listed: BTreeSet<SandboxId>,
}

impl Places {
    fn new(free: usize) -> Self {
        Self { free: free.max(1), waiting: VecDeque::new(), listed: BTreeSet::new() }
    }

    fn pop(&mut self) -> Option<SandboxId> {
        let id = self.waiting.pop_front()?;
        self.listed.remove(&id);
        Some(id)
    }
}

impl Lanes {
    pub(super) fn new(at_once: usize, stock_at_once: usize) -> Self {
        Self {
            slow: Places::new(at_once),
            quick: Places::new(at_once),
            stock: Places::new(stock_at_once),
        }
    }

    fn places(&mut self, lane: Lane) -> &mut Places {
        match lane {
            Lane::Slow => &mut self.slow,
            Lane::Quick => &mut self.quick,
            Lane::Stock => &mut self.stock,
        }
    }

    fn gives_way(&self, lane: Lane) -> bool {
        lane == Lane::Stock && !self.slow.waiting.is_empty()
    }

    /// Takes a place, or queues `id` for one and says no.
    pub(super) fn enter(&mut self, lane: Lane, id: &SandboxId) -> bool {
        let gives_way = self.gives_way(lane);
        let places = self.places(lane);
        if places.free > 0 && !gives_way {
            places.free -= 1;
            return true;
        }
        if places.listed.insert(id.clone()) {
            places.waiting.push_back(id.clone());
        }
        false
    }

    pub(super) fn leave(&mut self, lane: Lane) {
        self.places(lane).free += 1;
    }

    /// Somebody who waited and may try to enter again.
    pub(super) fn next(&mut self) -> Option<SandboxId> {
        [Lane::Quick, Lane::Slow, Lane::Stock].into_iter().find_map(|lane| {
            let idle = self.places(lane).free == 0 || self.gives_way(lane);
            if idle { None } else { self.places(lane).pop() }
        })
    }
}
