//! A runtime without sandboxes: it keeps the contract of a real one in memory, and can be told to
//! be slow, to fail and to lose things. It serves tests and `--runtime sim`.

mod agent;
mod fault;
mod runtime;
mod script;
mod volumes;
mod world;

pub use fault::{Chaos, Tally};
pub use runtime::SimRuntime;
