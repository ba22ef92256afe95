//! What the engine needs from outside. Each trait has one contract suite in `atoll-testkit`,
//! run over every implementation.

mod clock;
mod runtime;
mod store;

pub use clock::{Clock, WallClock};
pub use runtime::{Capabilities, Event, Runtime, RuntimeError};
pub use store::{Change, Loaded, Store, StoreError};
