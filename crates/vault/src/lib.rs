//! Named secrets of tenants: written and replaced by their owners, read only by the server.
//!
//! What a caller gets back never holds a value; [`SecretValue`] is what the server itself asks
//! for, and it prints as nothing. Records lie in the server's private data folder.

mod record;
mod rules;
mod secrets;

pub use rules::Limits;
pub use secrets::{Now, Secret, SecretValue, Secrets};
