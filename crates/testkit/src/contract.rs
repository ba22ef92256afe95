//! One suite per seam; every implementation must pass it.

pub mod control;
pub mod runtime;
pub mod store;
