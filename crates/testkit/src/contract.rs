//! One suite per seam; every implementation must pass it.

pub mod control;
pub mod documents;
pub mod runtime;
pub mod store;
