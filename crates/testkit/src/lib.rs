//! What tests share: a clock to hold, a way to wait, samples, and one contract suite per seam.

mod clock;
pub mod contract;
mod eventually;
pub mod http;
pub mod sample;

pub use clock::ManualClock;
pub use eventually::eventually;
