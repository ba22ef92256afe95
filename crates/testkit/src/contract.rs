//! One suite per seam; every implementation must pass it.

pub mod runtime;
pub mod store;
