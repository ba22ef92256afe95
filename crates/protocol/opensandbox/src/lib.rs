//! The OpenSandbox door: its wire types, and both halves of its contract.

#[cfg(feature = "guest")]
pub mod guest;
#[cfg(feature = "lifecycle")]
pub mod lifecycle;
