//! Images for sandboxes: pulled from registries, read from OCI layouts and archives, or made from
//! this host's own `/usr`; unpacked once per layer into directories that overlayfs can mount.
//!
//! Guarantees:
//! - A layer directory is complete and its content has the digest in its name; it is built aside
//!   and renamed into place.
//! - Nothing an archive contains can make the unpacker touch a path outside the layer's directory.
//! - An image that needed credentials is never handed to a caller who has not shown working
//!   credentials for it to the registry.
//! - Tags are resolved when the image is not present; a present tag is used as it is until it is
//!   removed. `@sha256:` references are exact.
//!
//! One server owns a store's directory at a time; [`ImageStore::open`] removes leftovers in it.

mod addition;
mod config;
mod digest;
mod error;
mod host;
mod image;
mod layers;
mod local;
mod oci;
mod reference;
mod registry;
mod scratch;
mod store;
mod tarball;
mod unpack;

pub use addition::{Addition, AdditionState};
pub use config::{Config, Limits};
pub use error::{Error, ErrorKind};
pub use image::{Auth, Image, ImageConfig, ImageSummary, OverlayRoot, Progress, Stage};
pub use reference::Reference;
pub use store::ImageStore;
