//! Images from directories and archives that the operator named; clients cannot name host paths.

mod archive;
mod layout;
mod place;

use crate::{Error, ImageConfig, digest::Digest, unpack::Section};
use place::Place;
use std::path::PathBuf;

/// An OCI layout directory, or a tar of one or of `docker save`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalSource {
    kind: Kind,
    path: PathBuf,
    tag: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Layout,
    Archive,
}

/// What a local image consists of; its layers are parts of files.
#[derive(Debug)]
pub(crate) struct LocalContents {
    pub(crate) digest: String,
    pub(crate) config: ImageConfig,
    pub(crate) layers: Vec<(Digest, Section)>,
}

impl LocalSource {
    /// Reads `oci:/dir[:tag]` or `archive:/file.tar[:tag]`; none when it is neither.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, String>> {
        let (kind, rest) = match text.split_once(':')? {
            ("oci", rest) => (Kind::Layout, rest),
            ("archive", rest) => (Kind::Archive, rest),
            _ => return None,
        };
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag.to_owned())),
            _ => (rest, None),
        };
        if !path.starts_with('/') {
            return Some(Err(format!("the path {path:?} must be absolute")));
        }
        Some(Ok(Self { kind, path: PathBuf::from(path), tag }))
    }

    /// Reads the metadata; blocks on files.
    pub(crate) fn resolve(&self, image: &str) -> Result<LocalContents, Error> {
        let place = match self.kind {
            Kind::Layout => Place::directory(image, self.path.clone()),
            Kind::Archive => Place::archive(image, self.path.clone())?,
        };
        if self.kind == Kind::Archive && !place.has("index.json") {
            return archive::resolve(&place, self.tag.as_deref());
        }
        layout::resolve(&place, self.tag.as_deref())
    }
}
