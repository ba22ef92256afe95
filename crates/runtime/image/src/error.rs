//! What can go wrong with an image, in words its user can act on.

use std::{io, path::PathBuf, sync::Arc};

/// A failure to provide an image; shared by every caller that waited for the same pull.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The text is not an image reference.
    #[error("image {reference:?} is not a valid image reference: {reason}")]
    Reference {
        /// The text as given.
        reference: String,
        /// The rule it breaks and the remedy.
        reason: String,
    },
    /// The registry did not answer, or not usefully.
    #[error("image {image} cannot be pulled: registry {host} is unreachable: {reason}")]
    Unreachable {
        /// Image being pulled.
        image: String,
        /// Registry host and port.
        host: String,
        /// Cause, in the words of the network stack or the registry.
        reason: String,
    },
    /// The registry refused the credentials, or wants some.
    #[error("image {image} cannot be pulled: registry {host} {}", unauthorized(*with_credentials))]
    Unauthorized {
        /// Image being pulled.
        image: String,
        /// Registry host and port.
        host: String,
        /// Whether the caller gave a username and password.
        with_credentials: bool,
    },
    /// No such repository, tag or digest.
    #[error("image {image} was not found in {place}: check its name and tag")]
    NotFound {
        /// Image being pulled.
        image: String,
        /// Registry host, layout directory or archive.
        place: String,
    },
    /// The image exists, but not for this machine.
    #[error(
        "image {image} has no variant for {wanted}; it offers {offered}: build it for {wanted}"
    )]
    Platform {
        /// Image being pulled.
        image: String,
        /// This machine's platform.
        wanted: String,
        /// Platforms the image has.
        offered: String,
    },
    /// Content is not what its digest promises.
    #[error(
        "image {image} is damaged: {what} should have digest {expected} but has {actual}; push it again"
    )]
    Digest {
        /// Image being pulled.
        image: String,
        /// Which part.
        what: String,
        /// Digest promised.
        expected: String,
        /// Digest found.
        actual: String,
    },
    /// A manifest, configuration or archive breaks its format.
    #[error("image {image} cannot be used: {reason}")]
    Malformed {
        /// Image being pulled.
        image: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An archive entry that a well-made image does not have.
    #[error("image {image} cannot be unpacked: entry {entry:?} was refused: {reason}")]
    Refused {
        /// Image being pulled.
        image: String,
        /// Path of the entry.
        entry: String,
        /// Rule it breaks.
        reason: String,
    },
    /// The image exceeds a limit of this server.
    #[error("image {image} is too large: {what} exceeds this server's limit of {limit}")]
    TooLarge {
        /// Image being pulled.
        image: String,
        /// The quantity.
        what: &'static str,
        /// Its bound.
        limit: u64,
    },
    /// The disk of the store is full.
    #[error("image {image} cannot be stored: no space left in {}: free some space or remove unused images", path.display())]
    NoSpace {
        /// Image being stored.
        image: String,
        /// Where the write failed.
        path: PathBuf,
    },
    /// A layout directory or archive named by an alias cannot be read.
    #[error("image {image} cannot be read from {}: {reason}", path.display())]
    LocalSource {
        /// Name of the image.
        image: String,
        /// Path from the operator's configuration.
        path: PathBuf,
        /// Cause and remedy.
        reason: String,
    },
    /// This machine cannot serve as an image.
    #[error(
        "the host image is not supported on this machine: {reason}; use an image from a registry instead"
    )]
    HostUnsupported {
        /// What the host lacks.
        reason: String,
    },
    /// An image made on this machine is not there.
    #[error("image {image} is not there: {reason}")]
    NotBuilt {
        /// Name of the image.
        image: String,
        /// Cause and remedy.
        reason: String,
    },
    /// A setting is not usable.
    #[error("configuration {field} is not usable: {reason}")]
    Configuration {
        /// Field of [`Config`](crate::Config).
        field: String,
        /// Cause and remedy.
        reason: String,
    },
    /// The store's own file operations failed.
    #[error("{doing} {} failed: {source}", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// Its subject.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// A pull ended without a result.
    #[error("the pull of image {image} stopped unexpectedly; try again")]
    Interrupted {
        /// Image being pulled.
        image: String,
    },
}

/// What a caller can do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Try later, or repair the network.
    Unreachable,
    /// Give other credentials.
    Unauthorized,
    /// Name another image.
    NotFound,
    /// Repair the image, the reference or the configuration.
    Invalid,
    /// Free some disk.
    NoSpace,
    /// Use a smaller image or raise the limit.
    TooLarge,
    /// Nothing: the server is at fault.
    Internal,
}

impl Error {
    /// Class of the failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreachable { .. } | Self::NotBuilt { .. } => ErrorKind::Unreachable,
            Self::Unauthorized { .. } => ErrorKind::Unauthorized,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Reference { .. }
            | Self::Platform { .. }
            | Self::Digest { .. }
            | Self::Malformed { .. }
            | Self::Refused { .. }
            | Self::LocalSource { .. }
            | Self::HostUnsupported { .. }
            | Self::Configuration { .. } => ErrorKind::Invalid,
            Self::NoSpace { .. } => ErrorKind::NoSpace,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Io { .. } | Self::Interrupted { .. } => ErrorKind::Internal,
        }
    }

    /// Wraps a file operation's failure; a full disk becomes [`Error::NoSpace`].
    pub(crate) fn io(
        image: &str,
        doing: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        let (path, source) = (path.into(), source.into());
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoSpace { image: image.to_owned(), path }
            }
            _ => Self::Io { doing, path, source: Arc::new(source) },
        }
    }

    pub(crate) fn malformed(image: &str, reason: impl Into<String>) -> Self {
        Self::Malformed { image: image.to_owned(), reason: reason.into() }
    }
}

fn unauthorized(with_credentials: bool) -> &'static str {
    if with_credentials {
        "refused the credentials: wrong username or password, or no permission to pull this image"
    } else {
        "does not give it to anonymous callers: it is private or does not exist; \
         check the name or give image.auth with username and password"
    }
}
