//! The story of one sandbox: when it entered which phase, and why.

use crate::lifecycle::Phase;
use crate::time::Timestamp;

/// Entries kept; a sandbox paused every minute for a month must not grow its record.
const ENTRIES_MAX: usize = 64;

/// One line of the story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// The phase from then on.
    pub phase: Phase,
    /// Why, or what is being done.
    pub message: String,
}

/// The newest entries, oldest first; the very first (creation) is always kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline(Vec<Entry>);

impl Timeline {
    /// A timeline read back from a store.
    pub fn from_entries(entries: Vec<Entry>) -> Self {
        let mut timeline = Self::default();
        for entry in entries {
            timeline.push(entry);
        }
        timeline
    }

    /// Adds a line; the oldest but the first goes when there are too many.
    pub fn push(&mut self, entry: Entry) {
        if self.0.len() == ENTRIES_MAX {
            self.0.remove(1);
        }
        self.0.push(entry);
    }

    /// All lines kept, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }
}
