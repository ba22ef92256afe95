//! Durable records, in a file or in memory.
//!
//! Records have a format of their own with a version number, so that neither the core's types nor
//! a door's can change what is on disk by accident. Registry credentials have no place in it.

mod convert;
mod disk;
mod documents;
mod record;

pub use disk::RedbStore;
