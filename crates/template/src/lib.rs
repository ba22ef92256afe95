//! Templates: prepared sandboxes by name, and how they are built.
//!
//! A build runs its steps in an ordinary sandbox and keeps what they left as snapshots. Steps that
//! were done before, in the same order on the same ground, are not done again.

mod agent;
mod book;
mod build;
mod built_in;
mod config;
mod ids;
mod log;
mod recipe;
mod record;
mod reference;
mod service;
mod uploads;

pub use build::{BUILDER_LABEL, SNAPSHOT_PREFIX};
pub use built_in::{BuiltIn, Progress};
pub use config::TemplateConfig;
pub use log::{Level, LogEntry};
pub use recipe::{Action, Ground, Recipe, Step};
pub use record::{Build, Made, Reason, Setting, Source, Status, Tag, Template};
pub use reference::Reference;
pub use service::{Found, NewBuild, Requested, TemplateService};
pub use uploads::{Grant, Presence};
