//! What every door may ask for: traits in domain words, no wire types.

mod access;
mod control;
mod documents;
mod io;
mod keys;
mod pools;
mod query;
mod templates;
mod volumes;

pub use access::{Access, Port};
pub use control::{Control, LogTail, Sample, Usage};
pub use documents::Documents;
pub use io::{BoxedIo, Io};
pub use keys::Keys;
pub use pools::{Pool, PoolStatus, Pools};
pub use query::{Claim, Create, Filter, MetadataPatch, Page, Paging, SnapshotFilter};
pub use templates::Templates;
pub use volumes::{EntryKind, Ownership, Volume, VolumeEntry, VolumeFile, Volumes};
