//! What tests share: a clock to hold, a way to wait, samples, and one contract suite per seam.

mod clock;
pub mod contract;
mod eventually;
pub mod http;
mod random;
pub mod sample;
mod store;

pub use clock::ManualClock;
pub use eventually::eventually;
pub use random::Seeded;
pub use store::{FaultyStore, StoreFaults};
