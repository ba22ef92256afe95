//! The E2B door: its wire types, what answers inside a sandbox, and what answers in the server.

#[cfg(feature = "guest")]
pub mod guest;
#[cfg(feature = "interpreter")]
pub mod interpreter;
#[cfg(feature = "lifecycle")]
pub mod lifecycle;
