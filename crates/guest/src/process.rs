//! Starting processes and learning how they end.

pub(crate) mod family;
mod launch;
mod reaper;

pub use launch::{Input, Launch, Spawned, Wiring, resolve_program, shell};
pub use reaper::{Exit, Reaper, Role};
