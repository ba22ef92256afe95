//! What the `code-interpreter` template adds to the host image: a Python environment with the
//! usual packages, a JavaScript kernel, and what makes both show their values well.
//!
//! [`build`] makes a folder that is laid over the image; everything in it lies under
//! [`PREFIX`]. It comes from the package registries that pip and npm are configured for.

mod build;
mod error;
mod folder;
mod recipe;

pub use build::build;
pub use error::Error;
pub use folder::prepare_folder;
pub use recipe::{PREFIX, environment, recipe_digest};
