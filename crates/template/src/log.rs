//! What a build said.

use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_core::Timestamp;
use serde::{Deserialize, Serialize};

/// Bytes of all messages of one build.
const LOG_BYTES_MAX: usize = 256 * 1024;
/// Of these, what stays free for the words at the end.
const RESERVED_BYTES: usize = 16 * 1024;
const ENTRIES_MAX: usize = 4000;
const RESERVED_ENTRIES: usize = 50;
/// Bytes of one message; the rest is cut.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

/// How much an entry matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Details.
    Debug,
    /// What happens.
    Info,
    /// What may be wrong.
    Warn,
    /// What is wrong.
    Error,
}

impl Level {
    /// As the wire writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    /// Reads a level.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Debug, Self::Info, Self::Warn, Self::Error].into_iter().find(|l| l.as_str() == text)
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// When, in microseconds since the epoch.
    pub at_micros: i64,
    /// How much it matters.
    pub level: Level,
    /// What was said.
    pub message: String,
    /// Where: `base`, the number of a step from 1, or `finalize`.
    pub step: Option<String>,
}

impl LogEntry {
    /// When.
    pub fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.at_micros)
    }
}

/// A bounded list of entries that only grows, so that a reader's offset stays right.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    list: Vec<LogEntry>,
    bytes: usize,
    cut: bool,
}

impl Log {
    /// A log as it was written down.
    pub(crate) fn of(list: Vec<LogEntry>) -> Self {
        let bytes = list.iter().map(|entry| entry.message.len()).sum();
        Self(Mutex::new(Entries { list, bytes, cut: false }))
    }

    /// Adds what the build does.
    pub(crate) fn note(&self, entry: LogEntry) {
        self.add(entry, true);
    }

    /// Adds what a command printed: as much as there is room for.
    pub(crate) fn output(&self, entry: LogEntry) {
        self.add(entry, false);
    }

    fn add(&self, mut entry: LogEntry, reserved: bool) {
        let mut entries = self.lock();
        entry.message = cut(&entry.message);
        let (bytes_kept, entries_kept) =
            if reserved { (0, 0) } else { (RESERVED_BYTES, RESERVED_ENTRIES) };
        let bytes = entries.bytes + entry.message.len();
        let fits =
            bytes + bytes_kept <= LOG_BYTES_MAX && entries.list.len() + entries_kept < ENTRIES_MAX;
        if fits {
            entries.bytes = bytes;
            entries.list.push(entry);
        } else if !entries.cut && entries.list.len() < ENTRIES_MAX {
            entries.cut = true;
            entry.message = "the rest of the output is left out: the log is full".to_owned();
            entry.level = Level::Warn;
            entries.list.push(entry);
        }
    }

    /// Up to `limit` entries of `level` or above, leaving out the first `offset` of them.
    pub(crate) fn window(&self, offset: usize, limit: usize, level: Level) -> Vec<LogEntry> {
        let entries = self.lock();
        let fitting = entries.list.iter().filter(|entry| entry.level >= level);
        fitting.skip(offset).take(limit).cloned().collect()
    }

    /// Everything.
    pub(crate) fn all(&self) -> Vec<LogEntry> {
        self.lock().list.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Text without control characters but tabs, colours included, and of a bounded length.
fn cut(text: &str) -> String {
    let mut end = text.len().min(MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().filter(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\u{1b}')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(message: &str, level: Level) -> LogEntry {
        LogEntry { at_micros: 1, level, message: message.to_owned(), step: None }
    }

    #[test]
    fn output_is_bounded_and_the_last_words_still_fit() {
        let log = Log::default();
        for _ in 0..10_000 {
            log.output(entry(&"x".repeat(1000), Level::Info));
        }
        log.note(entry("the end", Level::Error));
        let all = log.all();
        assert!(all.iter().map(|e| e.message.len()).sum::<usize>() <= LOG_BYTES_MAX + 100);
        assert_eq!(all.last().unwrap().message, "the end");
        assert_eq!(all.iter().filter(|e| e.message.contains("left out")).count(), 1);
    }

    #[test]
    fn windows_count_only_what_they_show() {
        let log = Log::default();
        for (at, level) in [Level::Info, Level::Debug, Level::Error, Level::Info].iter().enumerate()
        {
            log.note(entry(&at.to_string(), *level));
        }
        let shown = |offset, limit, level| {
            let entries = log.window(offset, limit, level);
            entries.into_iter().map(|e| e.message).collect::<Vec<_>>()
        };
        assert_eq!(shown(0, 100, Level::Debug), ["0", "1", "2", "3"]);
        assert_eq!(shown(1, 2, Level::Debug), ["1", "2"]);
        assert_eq!(shown(1, 100, Level::Info), ["2", "3"]);
        assert!(shown(4, 100, Level::Debug).is_empty());
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let log = Log::default();
        log.note(entry(&"ä".repeat(MESSAGE_BYTES_MAX), Level::Info));
        assert_eq!(log.all()[0].message.len(), MESSAGE_BYTES_MAX);
    }
}
