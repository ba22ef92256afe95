//! What every door may ask for: one trait in domain words, no wire types.

mod access;
mod control;
mod io;
mod keys;
mod query;

pub use access::{Access, Port};
pub use control::{Control, LogTail, Usage};
pub use io::{BoxedIo, Io};
pub use keys::Keys;
pub use query::{Create, Filter, MetadataPatch, Page, Paging, SnapshotFilter};
